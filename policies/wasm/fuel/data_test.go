package fuel_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// active is a data segment for the memory.
func active(offset int32, content string) []byte {
	return join([]byte{0}, i32const(offset), []byte{0x0b}, text(content))
}

// withData has two segments, of which the second goes over the first.
func withData(code ...byte) assembly {
	a := with(code...)
	a.exports = append(a.exports, join(text("memory"), []byte{2, 0}))
	a.data = [][]byte{active(8, "first"), join([]byte{2, 0}, i32const(10), []byte{0x0b}, text("second"))}
	return a
}

func TestDataIsLeftToTheHost(t *testing.T) {
	r := newRuntime(t)
	for claim, a := range map[string]assembly{
		"as it stands":      withData(),
		"also when counted": func() assembly { a := withData(); a.dataCount = [][]byte{{2}}; return a }(),
	} {
		t.Run(claim, func(t *testing.T) {
			g := instantiate(t, r, a.bytes(), fuel.Options{ExtractData: true})
			want := []fuel.Segment{{Offset: 8, Bytes: []byte("first")}, {Offset: 10, Bytes: []byte("second")}}
			if diff := cmp.Diff(want, g.rewritten.Data); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			if got, _ := g.Memory().Read(0, 1<<16); len(bytes.Trim(got, "\x00")) != 0 {
				t.Error("the memory is not empty")
			}
		})
	}
}

// TestDataStaysWhereCodeCanTell holds for modules that would do something else
// without their segments, and for those that the engine refuses for them.
func TestDataStaysWhereCodeCanTell(t *testing.T) {
	three := []byte{0x41, 0, 0x41, 0, 0x41, 0}
	for claim, a := range map[string]assembly{
		"a segment is copied by code":  withData(join(three, []byte{0xfc, 8, 0, 0})...),
		"a segment is dropped by code": withData(0xfc, 9, 0),
		"a segment is passive":         func() assembly { a := withData(); a.data = append(a.data, join([]byte{1}, text("x"))); return a }(),
		"the address is a global's": func() assembly {
			a := withData()
			a.imports, a.globals = [][]byte{join(text("env"), text("base"), []byte{3, 0x7f, 0})}, nil
			a.data[0] = join([]byte{0, 0x23, 0, 0x0b}, text("x"))
			return a
		}(),
		"the memory is another's":        func() assembly { a := varied(); a.data = [][]byte{active(0, "x")}; return a }(),
		"the count of segments is wrong": func() assembly { a := withData(); a.dataCount = [][]byte{{3}}; return a }(),
	} {
		t.Run(claim, func(t *testing.T) {
			plain := rewrite(t, a.bytes(), fuel.Options{})
			m := rewrite(t, a.bytes(), fuel.Options{ExtractData: true})
			if m.Data != nil || !bytes.Equal(m.Code, plain.Code) {
				t.Errorf("%d segments were taken out", len(m.Data))
			}
		})
	}
}

func TestStockGuestGetsAllOfItsData(t *testing.T) {
	r := newWASIRuntime(t)
	plain, err := r.InstantiateWithConfig(t.Context(), stock(t), wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	g := instantiate(t, r, stock(t), fuel.Options{ExtractData: true})
	for _, s := range g.rewritten.Data {
		if !g.Memory().Write(s.Offset, s.Bytes) {
			t.Fatalf("%d bytes at %d lie outside of the memory", len(s.Bytes), s.Offset)
		}
	}
	want, _ := plain.Memory().Read(0, plain.Memory().Size())
	got, _ := g.Memory().Read(0, g.Memory().Size())
	if len(g.rewritten.Data) == 0 || !bytes.Equal(want, got) {
		t.Errorf("with %d segments, the memory is not that of the original", len(g.rewritten.Data))
	}
}
