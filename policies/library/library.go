// Package library holds ready-made policies in Rego, each in a folder with its
// tests, its cases and what there is to know before it is used. It compiles and
// runs none of them.
package library

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

// Files are the folders of the policies.
//
//go:embed */policy.rego */policy_test.rego */cases.yaml */README.md
var Files embed.FS

// Policy is one of the policies.
type Policy struct {
	Name    string // of its folder
	Summary string // a sentence on what it does
	Source  string // in Rego, of package gleaner
	Readme  string // in Markdown, with resources to apply
}

// All returns the policies in the order of their names.
func All() ([]Policy, error) {
	folders, err := fs.ReadDir(Files, ".")
	if err != nil {
		return nil, fmt.Errorf("list the library: %w", err)
	}
	var all []Policy
	for _, folder := range folders {
		p, err := read(folder.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func read(name string) (Policy, error) {
	source, err := fs.ReadFile(Files, name+"/policy.rego")
	if err != nil {
		return Policy{}, fmt.Errorf("read the library: %w", err)
	}
	readme, err := fs.ReadFile(Files, name+"/README.md")
	if err != nil {
		return Policy{}, fmt.Errorf("read the library: %w", err)
	}
	return Policy{Name: name, Summary: summary(string(source)), Source: string(source), Readme: string(readme)}, nil
}

// summary is the comment that a policy begins with, in one line.
func summary(source string) string {
	var words []string
	for line := range strings.Lines(source) {
		text, comment := strings.CutPrefix(line, "#")
		if !comment {
			break
		}
		words = append(words, strings.Fields(text)...)
	}
	return strings.Join(words, " ")
}
