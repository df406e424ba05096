package payload

import (
	"encoding/binary"
	"slices"
)

// Sections of a module that are lists, by their numbers.
const (
	tableSection   = 4
	exportSection  = 7
	elementSection = 9
)

// order is the order in which sections stand in a module.
var order = []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 10, 11}

// sections is a module in parts, so that more can be added to it than package asm can
// write.
type sections map[byte]*list

// list is a section: the number of its entries, and their bytes.
type list struct {
	count   uint64
	entries []byte
}

// split takes apart a module that package asm has written.
func split(code []byte) sections {
	s := sections{}
	for rest := code[8:]; len(rest) > 0; {
		id := rest[0]
		size, n := binary.Uvarint(rest[1:])
		body := rest[1+n : 1+n+int(size)]
		rest = rest[1+n+int(size):]
		count, n := binary.Uvarint(body)
		s[id] = &list{count, slices.Clone(body[n:])}
	}
	return s
}

// add adds an entry to a section.
func (s sections) add(id byte, entry []byte) {
	if s[id] == nil {
		s[id] = &list{}
	}
	s[id].count++
	s[id].entries = append(s[id].entries, entry...)
}

// bytes returns the module.
func (s sections) bytes() []byte {
	code := []byte("\x00asm\x01\x00\x00\x00")
	for _, id := range order {
		l := s[id]
		if l == nil {
			continue
		}
		count := binary.AppendUvarint(nil, l.count)
		code = append(code, id)
		code = binary.AppendUvarint(code, uint64(len(count)+len(l.entries)))
		code = append(append(code, count...), l.entries...)
	}
	return code
}

func number(n uint32) []byte { return binary.AppendUvarint(nil, uint64(n)) }
