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

// fetchLocal returns the module in the resource or in a ConfigMap.
func (f *Fetcher) fetchLocal(s Source) (Fetched, error) {
	if s.Inline != "" {
		if int64(len(s.Inline)) > f.limits.Rego {
			return Fetched{}, errorf(TooLarge, "inline: it is larger than the limit of %d bytes", f.limits.Rego)
		}
		return f.verify(s, "inline", "", []File{{Name: defaultRegoName, Data: []byte(s.Inline)}})
	}
	from := fmt.Sprintf("the key %s of the ConfigMap %s", s.ConfigMap.Key, s.ConfigMap.Name)
	data, err := s.ConfigMap.content()
	if err != nil {
		return Fetched{}, err
	}
	if int64(len(data)) > f.limits.Download {
		return Fetched{}, errorf(TooLarge, "%s is larger than the limit of %d bytes", from, f.limits.Download)
	}
	file, err := f.decompress(s, from, data)
	if err != nil {
		return Fetched{}, err
	}
	return f.verify(s, from, "", []File{file})
}

// content returns the value of the key. The API server ensures that no key is in both
// maps.
func (c *ConfigMap) content() ([]byte, error) {
	if data, ok := c.BinaryData[c.Key]; ok {
		return data, nil
	}
	if text, ok := c.Data[c.Key]; ok {
		return []byte(text), nil
	}
	keys := slices.Sorted(maps.Keys(c.Data))
	keys = append(keys, slices.Sorted(maps.Keys(c.BinaryData))...)
	if len(keys) == 0 {
		return nil, errorf(NotFound, "the ConfigMap %s has no key %q: it is empty", c.Name, c.Key)
	}
	const shown = 10
	return nil, errorf(NotFound, "the ConfigMap %s has no key %q: use one of %s", c.Name, c.Key,
		strings.Join(keys[:min(len(keys), shown)], ", "))
}

// decompress returns the module's file from data, which is plain or gzip.
func (f *Fetcher) decompress(s Source, from string, data []byte) (File, error) {
	content, err := Decompress(data, f.limits.content(s.Language))
	if err != nil {
		return File{}, withOrigin(from, err)
	}
	name := defaultWasmName
	if s.Language == Rego {
		name = defaultRegoName
	}
	return File{Name: name, Data: content}, nil
}

// Decompress returns data that may be compressed with gzip. It fails before more
// than the limit is in memory. The error is an *Error.
func Decompress(data []byte, limit int64) ([]byte, error) {
	if !bytes.HasPrefix(data, gzipMagic) {
		if int64(len(data)) > limit {
			return nil, errorf(TooLarge, "it is larger than the limit of %d bytes", limit)
		}
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, errDamaged(err)
	}
	content, err := io.ReadAll(io.LimitReader(r, limit+1))
	if int64(len(content)) > limit {
		return nil, errorf(TooLarge, "it is larger than the limit of %d bytes, decompressed", limit)
	}
	if err != nil {
		return nil, errDamaged(err)
	}
	return content, nil
}

func errDamaged(err error) *Error {
	return errorf(InvalidArtifact, "the gzip data is damaged: %v", err)
}

// verify verifies what was fetched. pin pins the source, if the source is not
// pinned already.
func (f *Fetcher) verify(s Source, from, pin string, files []File) (Fetched, error) {
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	for _, file := range files {
		if err := checkContent(s.Language, file); err != nil {
			return Fetched{}, withOrigin(from, err)
		}
	}
	got := Fetched{Files: files, Digest: Digest(files), Origin: from, Pin: pin}
	if s.SHA256 != "" && s.SHA256 != got.Digest {
		return Fetched{}, errorf(DigestMismatch,
			"%s: the module's sha256 is %s, want %s: if the module is the right one, correct the sha256",
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

// Digest returns the sha256, in hex, of the only file, or of the output of
// sha256sum for several files sorted by name.
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

// checkContent rejects what cannot be a module, such as a login page, for which the
// engine's message would not be helpful.
func checkContent(language Language, file File) error {
	if language == Rego {
		if !utf8.Valid(file.Data) {
			return errorf(InvalidArtifact, "%q is not Rego: it is not UTF-8 text", file.Name)
		}
		return nil
	}
	if !bytes.HasPrefix(file.Data, wasmMagic) {
		return errorf(InvalidArtifact, "it is not WebAssembly, which begins with %q: it begins with %q",
			wasmMagic, file.Data[:min(len(file.Data), 16)])
	}
	return nil
}
