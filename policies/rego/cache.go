package rego

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sealed"
)

// compiledCache keeps the output of OPA's compiler between runs. It is used by the same program
// only: another one may have other limits, another SDK or another compiler.
type compiledCache struct {
	folders *sealed.Cache // nil: nothing is kept
	program string        // identifies the program
}

// The files of a compiled policy.
const (
	codeFile    = "policy.wasm"
	summaryFile = "policy.json"
)

// summary is what is kept of a compiled policy in addition to its code.
type summary struct {
	Hooks []hostabi.Hook `json:"hooks"`
	Needs policies.Needs `json:"needs"`
}

// openCache opens the cache in a folder. Without a folder, or if the program can't be identified,
// nothing is kept.
func openCache(dir string) (compiledCache, error) {
	c := compiledCache{program: programID()}
	if dir == "" || c.program == "" {
		return c, nil
	}
	var err error
	c.folders, err = sealed.Open(filepath.Join(dir, "rego"))
	return c, err
}

// key returns the key of files, including tests: they can be rejected.
func (c compiledCache) key(files []File) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %d\n", c.program, len(files))
	for _, f := range sorted(files) {
		fmt.Fprintf(sum, "%d %d\n", len(f.Name), len(f.Text))
		_, _ = io.WriteString(sum, f.Name+f.Text)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// get returns the policy that was compiled from files before.
func (c compiledCache) get(files []File) (compiled, bool) {
	if c.folders == nil {
		return compiled{}, false
	}
	folder, ok := c.folders.Lookup(c.key(files))
	if !ok {
		return compiled{}, false
	}
	code, err := os.ReadFile(filepath.Join(folder, codeFile))
	if err != nil {
		return compiled{}, false
	}
	text, err := os.ReadFile(filepath.Join(folder, summaryFile))
	if err != nil {
		return compiled{}, false
	}
	var s summary
	if err := json.Unmarshal(text, &s); err != nil {
		return compiled{}, false
	}
	return compiled{code: code, hooks: s.Hooks, needs: s.Needs}, true
}

// put keeps a policy that was compiled from files. After a failure it is compiled again next time.
func (c compiledCache) put(files []File, p compiled) {
	if c.folders == nil {
		return
	}
	folder, err := c.folders.Create()
	if err != nil {
		return
	}
	text, err := json.Marshal(summary{p.hooks, p.needs})
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, summaryFile), text, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, codeFile), p.code, 0o600)
	}
	c.folders.Commit(folder, c.key(files), err == nil)
}
