package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// notes returns what CHANGELOG.md says about the version. A version before a release, such as v1.2.3-rc.1, has the notes of what is not
// released yet.
func (r *release) notes() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	heading := r.version
	if strings.Contains(r.version, "-") {
		heading = "Unreleased"
	}
	_, section, found := bytes.Cut(append([]byte("\n"), text...), []byte("\n## "+heading+"\n"))
	if !found {
		return nil, fmt.Errorf("CHANGELOG.md has no section %q: rename the section Unreleased, and begin another one", "## "+heading)
	}
	section, _, _ = bytes.Cut(section, []byte("\n## "))
	if len(bytes.TrimSpace(section)) == 0 {
		return nil, fmt.Errorf("the section %q of CHANGELOG.md is empty", "## "+heading)
	}
	return append([]byte("# Gleaner "+r.version+"\n\n"), append(bytes.TrimSpace(r.absolute(section)), '\n')...), nil
}

// absolute makes links to files of the repository work elsewhere.
func (r *release) absolute(text []byte) []byte {
	for _, folder := range []string{"docs/", "policies/", "examples/", "config/", "sdk/", "crds/", "cmd/", "README.md", "RATIONALE.md"} {
		text = bytes.ReplaceAll(text, []byte("]("+folder), []byte("]("+repository+"/blob/"+r.version+"/"+folder))
	}
	return text
}
