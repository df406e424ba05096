package wire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// examples are one message of each kind.
func examples() []Message {
	return []Message{
		&Compile{Engine: "Rego", Files: []File{{Name: "a.rego", Text: []byte("package gleaner")}, {Name: "b", Text: []byte{}}}},
		&Load{Module: 7, Engine: "Wasm", Digest: "ab", Hooks: []string{"collect"}, Code: []byte("\x00asm")},
		&Start{Policy: 1, Module: 2, Name: "GCPolicy a/b", Fuel: 3, Memory: 4, Timeout: 5},
		&Evaluate{Policy: 1, Hook: "collect", Time: -1, Document: []byte("{}")},
		&Reply{
			Outcome: Done, FaultKind: "Trapped", Message: "m", Hooks: []string{"collect"}, Imports: []string{"a", "b"}, Size: 1, Code: []byte("c"),
			Verdict: []byte("{}"), Fuel: 2, Memory: 3, Elapsed: 4, Restored: true, Log: []Line{{Source: "log", Level: 2, Text: "t"}}, Dropped: 5,
		},
	}
}

func empty(k Kind) Message {
	switch k {
	case KindCompile:
		return &Compile{}
	case KindLoad:
		return &Load{}
	case KindStart:
		return &Start{}
	case KindEvaluate:
		return &Evaluate{}
	case KindReply:
		return &Reply{}
	default:
		return nil
	}
}

func TestFrame_RoundTrips(t *testing.T) {
	var stream bytes.Buffer
	for _, m := range examples() {
		if _, err := Write(&stream, 7, m, nil); err != nil {
			t.Fatal(err)
		}
		f, err := (&Reader{}).Read(&stream, MaxRequest)
		if err != nil || f.ID != 7 {
			t.Fatalf("number %d, error %v", f.ID, err)
		}
		got := empty(f.Kind)
		if err := f.Decode(got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Errorf("%T (-written +read):\n%s", m, diff)
		}
	}
}

func TestAFrameThatIsCutOffIsMalformed(t *testing.T) {
	for _, m := range examples() {
		var whole bytes.Buffer
		if _, err := Write(&whole, 7, m, nil); err != nil {
			t.Fatal(err)
		}
		payload := whole.Bytes()[headerSize:]
		for n := range payload {
			if err := (Frame{Kind: m.kind(), Payload: payload[:n]}).Decode(empty(m.kind())); !errors.Is(err, ErrMalformed) {
				t.Fatalf("%T cut off after %d of %d bytes: %v", m, n, len(payload), err)
			}
		}
	}
}

func TestALengthAloneAllocatesNothing(t *testing.T) {
	announced := []byte{0xff, 0xff, 0xff, 0x04, byte(KindReply), 0, 0, 0, 0} // 80 MiB, of which nothing comes
	allocated := testing.AllocsPerRun(1, func() {
		var r Reader
		if _, err := r.Read(bytes.NewReader(announced), MaxReply+(16<<20)); err == nil || r.Memory() > 1<<20 {
			t.Fatalf("%d bytes allocated, error %v", r.Memory(), err)
		}
	})
	if allocated > 10 {
		t.Errorf("%v allocations", allocated)
	}
}

func TestAFrameOverTheLimitIsMalformed(t *testing.T) {
	var stream bytes.Buffer
	if _, err := Write(&stream, 7, &Evaluate{Document: make([]byte, 1000)}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Reader{}).Read(&stream, 999); !errors.Is(err, ErrMalformed) {
		t.Errorf("error is %v", err)
	}
}

// slow is a stream that has a timeout before every byte.
type slow struct {
	from io.Reader
	late bool
}

// Read implements io.Reader.
func (s *slow) Read(into []byte) (int, error) {
	if s.late = !s.late; s.late {
		return 0, os.ErrDeadlineExceeded
	}
	return s.from.Read(into[:1])
}

func TestRead_ContinuesAfterTimeout(t *testing.T) {
	var whole bytes.Buffer
	if _, err := Write(&whole, 7, &Evaluate{Policy: 3, Hook: "collect", Document: []byte("{}")}, nil); err != nil {
		t.Fatal(err)
	}
	var r Reader
	stream, timeouts := &slow{from: &whole}, 0
	for {
		f, err := r.Read(stream, MaxRequest)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			timeouts++
			continue
		}
		var got Evaluate
		if err != nil || f.ID != 7 || f.Decode(&got) != nil || got.Policy != 3 || string(got.Document) != "{}" || timeouts < headerSize {
			t.Fatalf("%+v after %d timeouts, error %v", got, timeouts, err)
		}
		return
	}
}

// FuzzRead feeds bytes that any worker could send.
func FuzzRead(f *testing.F) {
	for _, m := range examples() {
		var b bytes.Buffer
		if _, err := Write(&b, 7, m, nil); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte{0, 0, 0, 0x10, 5, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bytes.NewReader(stream)
		var in Reader
		frame, err := in.Read(r, 1<<20)
		if in.Memory() > 2<<20 {
			t.Fatalf("a buffer of %d bytes for a stream of %d", in.Memory(), len(stream))
		}
		if err != nil {
			return
		}
		into := empty(frame.Kind)
		if into == nil || frame.Decode(into) != nil {
			return
		}
		var again bytes.Buffer
		if _, err := Write(&again, frame.ID, into, nil); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(r)
		if !bytes.Equal(again.Bytes(), stream[:len(stream)-len(rest)]) {
			t.Fatalf("read %q, which is written as %q", stream, again.Bytes())
		}
	})
}
