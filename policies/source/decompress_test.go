package source_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/source"
)

func TestDecompress(t *testing.T) {
	code := []byte("\x00asm\x01\x00\x00\x00" + strings.Repeat("code", 100))
	for _, c := range []struct {
		claim   string
		data    []byte
		want    []byte
		refusal string
	}{
		{"what is not compressed stays as it is", code, code, ""},
		{"what is compressed is unpacked", zipped(t, code), code, ""},
		{"a gzip bomb ends at the limit", zipped(t, make([]byte, 64<<20)), nil, "it is larger than the limit of 1048576 bytes"},
		{"what is too large as it is", make([]byte, 2<<20), nil, "it is larger than the limit of 1048576 bytes"},
		{"what breaks off", zipped(t, code)[:20], nil, "the gzip data is damaged"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			got, err := source.Decompress(c.data, 1<<20)
			if (err != nil) != (c.refusal != "") || err != nil && !strings.Contains(err.Error(), c.refusal) {
				t.Fatalf("got %v, want %q", err, c.refusal)
			}
			if !bytes.Equal(got, c.want) {
				t.Errorf("got %d bytes, want %d", len(got), len(c.want))
			}
		})
	}
}
