package source

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// names of modules that have none of their own.
const (
	defaultWasmName = "module.wasm"
	defaultRegoName = "policy.rego"
)

var (
	gzipMagic = []byte{0x1f, 0x8b}
	wasmMagic = []byte("\x00asm")
)

// fetchLocal takes what the resource, or a ConfigMap, has in it.
func (f *Fetcher) fetchLocal(s Source) (Fetched, error) {
	if s.Inline != "" {
		if int64(len(s.Inline)) > f.limits.Rego {
			return Fetched{}, fault(TooLarge, "inline: it is larger than the limit of %d bytes", f.limits.Rego)
		}
		return f.finish(s, "inline", "", []File{{Name: defaultRegoName, Data: []byte(s.Inline)}})
	}
	from := fmt.Sprintf("the key %s of the ConfigMap %s", s.ConfigMap.Key, s.ConfigMap.Name)
	data, err := s.ConfigMap.value()
	if err != nil {
		return Fetched{}, err
	}
	if int64(len(data)) > f.limits.Download {
		return Fetched{}, fault(TooLarge, "%s is larger than the limit of %d bytes", from, f.limits.Download)
	}
	file, err := f.open(s, from, data)
	if err != nil {
		return Fetched{}, err
	}
	return f.finish(s, from, "", []File{file})
}

// value is what the key holds. The API server sees to it that no key is of both.
func (c *ConfigMap) value() ([]byte, error) {
	if data, ok := c.BinaryData[c.Key]; ok {
		return data, nil
	}
	if text, ok := c.Data[c.Key]; ok {
		return []byte(text), nil
	}
	keys := slices.Sorted(maps.Keys(c.Data))
	keys = append(keys, slices.Sorted(maps.Keys(c.BinaryData))...)
	if len(keys) == 0 {
		return nil, fault(NotFound, "the ConfigMap %s has no key %q, nor any other", c.Name, c.Key)
	}
	const shown = 10
	return nil, fault(NotFound, "the ConfigMap %s has no key %q: use one of %s", c.Name, c.Key,
		strings.Join(keys[:min(len(keys), shown)], ", "))
}

// open makes a module's one file of what was fetched, plain or gzip.
func (f *Fetcher) open(s Source, from string, data []byte) (File, error) {
	content, err := Decompress(data, f.limits.content(s.Language))
	if err != nil {
		return File{}, placed(from, err)
	}
	name := defaultWasmName
	if s.Language == Rego {
		name = defaultRegoName
	}
	return File{Name: name, Data: content}, nil
}

// Decompress returns data that may have been compressed with gzip. What would be
// larger than the limit is refused before it is in memory. The error is an *Error.
func Decompress(data []byte, limit int64) ([]byte, error) {
	if !bytes.HasPrefix(data, gzipMagic) {
		if int64(len(data)) > limit {
			return nil, fault(TooLarge, "it is larger than the limit of %d bytes", limit)
		}
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, damaged(err)
	}
	content, err := io.ReadAll(io.LimitReader(r, limit+1))
	if int64(len(content)) > limit {
		return nil, fault(TooLarge, "it is larger than the limit of %d bytes, decompressed", limit)
	}
	if err != nil {
		return nil, damaged(err)
	}
	return content, nil
}

func damaged(err error) *Error {
	return fault(BadArtifact, "it is compressed with gzip, and damaged: %v", err)
}

// finish checks what was fetched. The pin is that of the place, if it is one that
// can't come to mean another module.
func (f *Fetcher) finish(s Source, from, pin string, files []File) (Fetched, error) {
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	for _, file := range files {
		if err := plausible(s.Language, file); err != nil {
			return Fetched{}, placed(from, err)
		}
	}
	got := Fetched{Files: files, Digest: Digest(files), From: from, Pin: pin}
	if s.SHA256 != "" && s.SHA256 != got.Digest {
		return Fetched{}, fault(DigestMismatch,
			"%s: the module's sha256 is %s, and the resource says %s: if the module is the one that is meant, correct the sha256",
			from, got.Digest, s.SHA256)
	}
	got.Pinned = s.SHA256 != "" || s.Inline != "" || pinnedByImage(s)
	switch {
	case got.Pinned:
		got.Pin = ""
	case got.Pin == "":
		got.Pin = "sha256: " + got.Digest
	}
	return got, nil
}

// Digest is the sha256, in hex, of the only file, or of what sha256sum prints for
// several that are in the order of their names.
func Digest(files []File) string {
	if len(files) == 1 {
		return hexSum(files[0].Data)
	}
	var lines strings.Builder
	for _, f := range files {
		fmt.Fprintf(&lines, "%s  %s\n", hexSum(f.Data), f.Name)
	}
	return hexSum([]byte(lines.String()))
}

// plausible refuses what can't be a module, such as a page that asks to log in,
// where the engine's message would be of no help.
func plausible(language Language, file File) error {
	if language == Rego {
		if !utf8.Valid(file.Data) {
			return fault(BadArtifact, "%q is no Rego: it is no text in UTF-8", file.Name)
		}
		return nil
	}
	if !bytes.HasPrefix(file.Data, wasmMagic) {
		return fault(BadArtifact, "it is no WebAssembly: that begins with %q, and this with %q",
			wasmMagic, file.Data[:min(len(file.Data), 16)])
	}
	return nil
}
