package rego

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"sync"
)

// programID returns Go's build ID of this program, which changes with its code; "" where it is not
// known. It is read once, since a confined process can't open files later.
var programID = sync.OnceValue(func() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	file, err := elf.Open(path)
	if err != nil {
		return "" // another operating system
	}
	defer file.Close()
	section := file.Section(".note.go.buildid")
	if section == nil {
		return ""
	}
	note, err := section.Data()
	if err != nil {
		return ""
	}
	return descriptionOf(note, file.ByteOrder)
})

// descriptionOf returns the description in a note of an ELF file: three lengths and types of four
// bytes, the name, and the description, each padded to four bytes.
func descriptionOf(note []byte, order binary.ByteOrder) string {
	const header, align = 12, 4
	if len(note) < header {
		return ""
	}
	name, description := uint64(order.Uint32(note)), uint64(order.Uint32(note[4:]))
	start := header + (name+align-1)/align*align
	if end := start + description; end <= uint64(len(note)) {
		return string(note[start:end])
	}
	return ""
}

// Prepare reads what engines need to know about this program, for a process that is about to be
// confined.
func Prepare() { programID() }
