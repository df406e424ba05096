package settings

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// header is the magic number and the version of a WebAssembly module.
var header = []byte("\x00asm\x01\x00\x00\x00")

var errTruncated = errors.New("it is not a WebAssembly module, or is truncated")

// Extract returns the schema that a module carries; nil if it carries none. It is not checked.
func Extract(module []byte) ([]byte, error) {
	var found []byte
	for s, err := range sections(module) {
		if err != nil {
			return nil, err
		}
		if s.name != hostabi.SettingsSection {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("it has several sections %s", hostabi.SettingsSection)
		}
		found = s.data
	}
	return found, nil
}

// Embed returns a module with a schema in place of the one that it carries. The schema is
// not checked.
func Embed(module, schema []byte) ([]byte, error) {
	out := slices.Clone(header)
	for s, err := range sections(module) {
		if err != nil {
			return nil, err
		}
		if s.name != hostabi.SettingsSection {
			out = append(out, s.raw...)
		}
	}
	content := binary.AppendUvarint(nil, uint64(len(hostabi.SettingsSection)))
	content = append(append(content, hostabi.SettingsSection...), schema...)
	out = binary.AppendUvarint(append(out, 0), uint64(len(content)))
	return append(out, content...), nil
}

// section is a section of a module.
type section struct {
	raw  []byte // with its ID and size
	name string // of a custom section
	data []byte // of a custom section
}

// sections yields the sections of a module.
func sections(module []byte) func(yield func(section, error) bool) {
	return func(yield func(section, error) bool) {
		rest, ok := bytes.CutPrefix(module, header)
		if !ok {
			yield(section{}, errTruncated)
			return
		}
		for len(rest) != 0 {
			size, n := binary.Uvarint(rest[1:])
			if n <= 0 || size > uint64(len(rest)-1-n) {
				yield(section{}, errTruncated)
				return
			}
			s := section{raw: rest[:1+n+int(size)]}
			if rest[0] == 0 {
				content := s.raw[1+n:]
				length, n := binary.Uvarint(content)
				if n <= 0 || length > uint64(len(content)-n) {
					yield(section{}, errTruncated)
					return
				}
				s.name, s.data = string(content[n:n+int(length)]), content[n+int(length):]
			}
			rest = rest[len(s.raw):]
			if !yield(s, nil) {
				return
			}
		}
	}
}
