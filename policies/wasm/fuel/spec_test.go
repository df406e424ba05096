package fuel_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// ampleFuel is more fuel than any action of the specification's tests takes.
const ampleFuel = 1 << 50

// skipped are commands of the specification's tests that are not run, by file
// and line, or by file for all of it, with the reason.
var skipped = map[string]string{
	"v2/ref_func:113": "exporting the start function declares it to the engine, so that a reference to it is valid",
}

// TestCoreSpecification runs the WebAssembly core specification's own tests,
// as the engine ships them, on rewritten modules.
func TestCoreSpecification(t *testing.T) {
	for version, features := range map[string]api.CoreFeatures{
		"v1": api.CoreFeaturesV1 | api.CoreFeatureMutableGlobal, // which exporting the counter takes
		"v2": api.CoreFeaturesV2,
	} {
		total := tally{}
		scripts, err := filepath.Glob(filepath.Join(wazeroFolder(t), "internal/integration_test/spectest", version, "testdata/*.json"))
		if err != nil || len(scripts) == 0 {
			t.Fatalf("the engine has no tests of the specification %s: %v", version, err)
		}
		for _, script := range scripts {
			name := version + "/" + strings.TrimSuffix(filepath.Base(script), ".json")
			t.Run(name, func(t *testing.T) { runScript(t, name, script, features, total) })
		}
		t.Logf("%s: %d scripts, %v", version, len(scripts), total)
	}
}

// wazeroFolder is where the engine's source is.
func wazeroFolder(t testing.TB) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatalf("find the engine's source: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// tally counts the commands that ran, by type.
type tally map[string]int

type command struct {
	Type       string  `json:"type"`
	Line       int     `json:"line"`
	Name       string  `json:"name"`
	Filename   string  `json:"filename"`
	As         string  `json:"as"`
	Action     action  `json:"action"`
	Expected   []value `json:"expected"`
	ModuleType string  `json:"module_type"`
	Text       string  `json:"text"`
}

type action struct {
	Type   string  `json:"type"`
	Module string  `json:"module"`
	Field  string  `json:"field"`
	Args   []value `json:"args"`
}

// nameModules says for each module as what it is registered later: the engine
// wants to know when it makes the instance.
func nameModules(commands []command) {
	last, named := -1, map[string]int{}
	for i, c := range commands {
		switch c.Type {
		case "module":
			last, named[c.Name] = i, i
		case "register":
			of := last
			if c.Name != "" {
				of = named[c.Name]
			}
			commands[of].As = c.As
		}
	}
}

// script is one of the specification's files of tests while it runs.
type script struct {
	folder  string
	runtime wazero.Runtime
	modules map[string]*guest // by name; the last under ""
	guests  []*guest
}

func runScript(t *testing.T, name, file string, features api.CoreFeatures, total tally) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var source struct {
		Commands []command `json:"commands"`
	}
	if err := json.Unmarshal(raw, &source); err != nil {
		t.Fatal(err)
	}
	s := &script{
		folder:  filepath.Dir(file),
		runtime: wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigCompiler().WithCoreFeatures(features)),
		modules: map[string]*guest{},
	}
	t.Cleanup(func() { _ = s.runtime.Close(t.Context()) })
	spectest, err := os.ReadFile(filepath.Join(wazeroFolder(t), "internal/integration_test/spectest/testdata/spectest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.runtime.Instantiate(t.Context(), spectest); err != nil {
		t.Fatal(err)
	}
	nameModules(source.Commands)
	for _, c := range source.Commands {
		if c.ModuleType == "text" {
			total["in the text format, skipped"]++
			continue
		}
		if reason, ok := skipped[fmt.Sprintf("%s:%d", name, c.Line)]; ok {
			t.Logf("line %d is skipped: %s", c.Line, reason)
			total["skipped"]++
			continue
		}
		if err := s.run(t, c); err != nil {
			t.Errorf("line %d: %s: %v", c.Line, c.Type, err)
		}
		total[c.Type]++
	}
}

// run carries out a command and says in what it differs from the script.
func (s *script) run(t *testing.T, c command) error {
	switch c.Type {
	case "module":
		return s.define(t, c)
	case "register":
		return nil // see nameModules
	case "action", "assert_return":
		return s.returns(t, c)
	case "assert_trap", "assert_exhaustion":
		return s.traps(t, c)
	case "assert_malformed", "assert_invalid":
		return s.refuses(t, c)
	case "assert_unlinkable", "assert_uninstantiable":
		_, err := s.instantiate(t, c.Filename, "")
		// The engine keeps such an instance, since its functions may be in tables of others.
		if tolerated := c.Text == "out of bounds table access"; err == nil && !tolerated {
			return errors.New("it could be instantiated")
		}
		return nil
	default:
		return errors.New("the command is unknown")
	}
}
