// Package library contains ready-made policies in Rego, each in a folder with its
// tests, cases and documentation. It does not compile or evaluate them.
package library

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

// Files contains the folders of the policies.
//
//go:embed */policy.rego */policy_test.rego */cases.yaml */README.md
var Files embed.FS

// Policy is one of the policies.
type Policy struct {
	Name    string // name of its folder
	Summary string // what it does, in one sentence
	Source  string // in Rego, of package gleaner
	Readme  string // in Markdown, with resources to apply
}

// All returns the policies, sorted by name.
func All() ([]Policy, error) {
	folders, err := fs.ReadDir(Files, ".")
	if err != nil {
		return nil, fmt.Errorf("list library: %w", err)
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
		return Policy{}, fmt.Errorf("read library: %w", err)
	}
	readme, err := fs.ReadFile(Files, name+"/README.md")
	if err != nil {
		return Policy{}, fmt.Errorf("read library: %w", err)
	}
	return Policy{Name: name, Summary: summary(string(source)), Source: string(source), Readme: string(readme)}, nil
}

// summary returns the comment at the beginning of a policy, in one line.
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
