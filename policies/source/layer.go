package source

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"path"
	"strings"
)

// layer is one that was pulled and verified. What is in it is a stranger's.
type layer struct {
	title string // may be empty
	data  []byte
}

// unpackArtifact takes each layer for a file.
func unpackArtifact(language Language, layers []layer, limits Limits) ([]File, error) {
	var files []File
	for _, l := range layers {
		if len(files) == limits.files(language) {
			return nil, tooMany(language, limits) // before another is decompressed
		}
		content, err := Decompress(l.data, limits.content(language))
		if err != nil {
			return nil, err
		}
		if name := l.name(language); !isTest(name) {
			files = append(files, File{Name: name, Data: content})
		}
	}
	return files, enough(language, files)
}

// name is that of the file which the layer is.
func (l layer) name(language Language) string {
	base := path.Base(strings.TrimSuffix(l.title, ".gz"))
	switch {
	case language == Wasm:
		return defaultWasmName
	case strings.HasSuffix(base, ".rego"):
		return base
	}
	return defaultRegoName
}

// unpackImage looks for the module among the files of archives.
func unpackImage(language Language, layers []layer, limits Limits) ([]File, error) {
	u := &unpacking{language: language, limits: limits, entries: limits.Entries}
	u.input.N = limits.Unpacked
	for _, l := range layers {
		if err := u.archive(l.data); err != nil {
			return nil, err
		}
	}
	return u.files, enough(language, u.files)
}

// enough refuses too few files, and several of one name.
func enough(language Language, files []File) error {
	if len(files) == 0 {
		return fault(BadArtifact, "there is no file *.%s in it", language)
	}
	names := map[string]bool{}
	for _, f := range files {
		if names[f.Name] {
			return fault(BadArtifact, "there are several files %q in it: give each a name of its own, and use a single COPY", f.Name)
		}
		names[f.Name] = true
	}
	return nil
}

func tooMany(language Language, limits Limits) *Error {
	if language == Wasm {
		return fault(BadArtifact, "there are several modules in it: push one alone")
	}
	return fault(TooLarge, "there are more than %d files *.%s in it", limits.Files, language)
}

// unpacking is the way through the archives of one image. Nothing is written
// anywhere, and only the module is kept in memory.
type unpacking struct {
	language Language
	limits   Limits
	input    io.LimitedReader // what is passed over is read as well, so this bounds the work
	entries  int              // that may still come
	files    []File
}

func (u *unpacking) archive(data []byte) error {
	u.input.R = bytes.NewReader(data)
	if bytes.HasPrefix(data, gzipMagic) {
		r, err := gzip.NewReader(u.input.R)
		if err != nil {
			return damaged(err)
		}
		u.input.R = r
	}
	archive := tar.NewReader(&u.input)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) && u.input.N > 0 {
			return nil
		}
		if err != nil {
			return u.broken(err)
		}
		if u.entries--; u.entries < 0 {
			return fault(TooLarge, "there are more than %d files in it: build it FROM scratch, with the module alone", u.limits.Entries)
		}
		if err := u.entry(header, archive); err != nil {
			return err
		}
	}
}

// broken says why an archive ends where it should not.
func (u *unpacking) broken(err error) *Error {
	if u.input.N <= 0 {
		return fault(TooLarge, "its layers are larger than the limit of %d bytes, decompressed: "+
			"build it FROM scratch, with the module alone", u.limits.Unpacked)
	}
	return fault(BadArtifact, "a layer of it is no archive, or damaged: %v", err)
}

// entry keeps a file if it is of the module.
func (u *unpacking) entry(header *tar.Header, content io.Reader) error {
	base := path.Base(path.Clean("/" + header.Name))
	if strings.HasPrefix(base, ".wh.") {
		return fault(BadArtifact, "a layer of it removes %q, of one below: build it FROM scratch, with the module alone", header.Name)
	}
	if !strings.HasSuffix(base, "."+string(u.language)) || strings.HasPrefix(base, ".") || isTest(base) {
		return nil
	}
	switch header.Typeflag {
	case tar.TypeReg:
	case tar.TypeDir:
		return nil
	default:
		return fault(BadArtifact, "%q is a link, or another thing that is no file: put the file itself there", header.Name)
	}
	limit := u.limits.content(u.language)
	if header.Size > limit {
		return fault(TooLarge, "%q is larger than the limit of %d bytes", header.Name, limit)
	}
	if len(u.files) == u.limits.files(u.language) {
		return tooMany(u.language, u.limits) // a sparse file costs nothing but memory
	}
	data, err := io.ReadAll(content)
	if err != nil {
		return u.broken(err)
	}
	u.files = append(u.files, File{Name: base, Data: data})
	return nil
}

// isTest tells whether a file holds only tests of Rego, which the cluster has no
// use for.
func isTest(name string) bool { return strings.HasSuffix(name, "_test.rego") }
