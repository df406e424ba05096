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

// layer is a layer that was pulled and verified. Its content is untrusted.
type layer struct {
	title string // may be empty
	data  []byte
}

// unpackArtifact uses each layer as a file.
func unpackArtifact(language Language, layers []layer, limits Limits) ([]File, error) {
	var files []File
	for _, l := range layers {
		if len(files) == limits.files(language) {
			return nil, errTooManyFiles(language, limits) // before decompressing another
		}
		content, err := Decompress(l.data, limits.content(language))
		if err != nil {
			return nil, err
		}
		if name := l.fileName(language); !isTest(name) {
			files = append(files, File{Name: name, Data: content})
		}
	}
	return files, checkFiles(language, files)
}

// fileName returns the file name of the layer.
func (l layer) fileName(language Language) string {
	base := path.Base(strings.TrimSuffix(l.title, ".gz"))
	switch {
	case language == Wasm:
		return defaultWasmName
	case strings.HasSuffix(base, ".rego"):
		return base
	}
	return defaultRegoName
}

// unpackImage extracts the module's files from archives.
func unpackImage(language Language, layers []layer, limits Limits) ([]File, error) {
	u := &unpackState{language: language, limits: limits, entries: limits.Entries}
	u.input.N = limits.Unpacked
	for _, l := range layers {
		if err := u.archive(l.data); err != nil {
			return nil, err
		}
	}
	return u.files, checkFiles(language, u.files)
}

// checkFiles rejects too few files, and several files with one name.
func checkFiles(language Language, files []File) error {
	if len(files) == 0 {
		return errorf(InvalidArtifact, "it contains no file *.%s", language)
	}
	names := map[string]bool{}
	for _, f := range files {
		if names[f.Name] {
			return errorf(InvalidArtifact, "it contains several files %q: use unique names, and a single COPY", f.Name)
		}
		names[f.Name] = true
	}
	return nil
}

func errTooManyFiles(language Language, limits Limits) *Error {
	if language == Wasm {
		return errorf(InvalidArtifact, "it contains several modules: push only one")
	}
	return errorf(TooLarge, "it contains more than %d files *.%s", limits.Files, language)
}

// unpackState extracts files from the archives of one image. Nothing is written to
// disk, and only the module is kept in memory.
type unpackState struct {
	language Language
	limits   Limits
	input    io.LimitedReader // skipped files are read as well, so this bounds the work
	entries  int              // that are still allowed
	files    []File
}

func (u *unpackState) archive(data []byte) error {
	u.input.R = bytes.NewReader(data)
	if bytes.HasPrefix(data, gzipMagic) {
		r, err := gzip.NewReader(u.input.R)
		if err != nil {
			return errDamaged(err)
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
			return u.explain(err)
		}
		if u.entries--; u.entries < 0 {
			return errorf(TooLarge, "it contains more than %d files: build it FROM scratch, with only the module", u.limits.Entries)
		}
		if err := u.entry(header, archive); err != nil {
			return err
		}
	}
}

// explain explains an archive that ends unexpectedly.
func (u *unpackState) explain(err error) *Error {
	if u.input.N <= 0 {
		return errorf(TooLarge, "its layers are larger than the limit of %d bytes, decompressed: "+
			"build it FROM scratch, with only the module", u.limits.Unpacked)
	}
	return errorf(InvalidArtifact, "a layer is not an archive, or is damaged: %v", err)
}

// entry keeps a file if it belongs to the module.
func (u *unpackState) entry(header *tar.Header, content io.Reader) error {
	base := path.Base(path.Clean("/" + header.Name))
	if strings.HasPrefix(base, ".wh.") {
		return errorf(InvalidArtifact, "a layer removes %q from a lower one: build it FROM scratch, with only the module", header.Name)
	}
	if !strings.HasSuffix(base, "."+string(u.language)) || strings.HasPrefix(base, ".") || isTest(base) {
		return nil
	}
	switch header.Typeflag {
	case tar.TypeReg:
	case tar.TypeDir:
		return nil
	default:
		return errorf(InvalidArtifact, "%q is a link or another special file: use a regular file", header.Name)
	}
	limit := u.limits.content(u.language)
	if header.Size > limit {
		return errorf(TooLarge, "%q is larger than the limit of %d bytes", header.Name, limit)
	}
	if len(u.files) == u.limits.files(u.language) {
		return errTooManyFiles(u.language, u.limits) // a sparse file is cheap, but uses memory
	}
	data, err := io.ReadAll(content)
	if err != nil {
		return u.explain(err)
	}
	u.files = append(u.files, File{Name: base, Data: data})
	return nil
}

// isTest reports whether a file only contains Rego tests, which are not needed in
// the cluster.
func isTest(name string) bool { return strings.HasSuffix(name, "_test.rego") }
