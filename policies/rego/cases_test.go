package rego

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/test/cases/testdata"
	"github.com/open-policy-agent/opa/v1/util"
)

var every = flag.Int("every", 10, "run one in so many of OPA's own test cases; 1: all of them, which takes minutes")

// TestModulesPassTheTestsOfOPA holds for OPA's own cases, as far as they can be
// put to a policy at all, but for those in testdata/opa-differences, which are
// run always. One that is listed there and does not differ fails, too.
func TestModulesPassTheTestsOfOPA(t *testing.T) {
	notUnderRace(t)
	all := opaCases(t)
	listed := readDifferences(t)
	rig := caseRig{engine: newEngine(t)}
	compared, leftOut := 0, map[string]int{}
	for i, c := range all {
		_, isListed := listed[c.Note]
		if i%max(1, *every) != 0 && !isListed {
			continue
		}
		t.Run(c.Note, func(t *testing.T) {
			got, err := rig.run(t, c)
			if why := (*unsupportedCase)(nil); errors.As(err, &why) && !isListed {
				leftOut[why.reason]++
				return
			}
			compared++
			if err != nil || got.kind() != listed[c.Note] {
				t.Errorf("the difference is %q, and %q in the list (error: %v)\nwant %.500s\ngot  %.500s", got.kind(), listed[c.Note], err, got.want, got.got)
			}
		})
		delete(listed, c.Note)
	}
	for _, note := range slices.Sorted(maps.Keys(listed)) {
		t.Errorf("%s: is listed, and OPA has no such case, or only one that has been run", note)
	}
	for reason, n := range leftOut {
		t.Logf("left out %d: %s", n, reason)
	}
	if sum := compared + total(leftOut); compared < sum/2 {
		t.Errorf("only %d of %d cases were compared", compared, sum)
	}
	t.Logf("compared %d", compared)
}

func total(counts map[string]int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// opaCases are the cases for Rego version 1, in the order of their files.
func opaCases(t *testing.T) []cases.TestCase {
	t.Helper()
	var all []cases.TestCase
	err := fs.WalkDir(testdata.V1, "v1", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}
		text, err := fs.ReadFile(testdata.V1, name)
		if err != nil {
			return err
		}
		var set cases.Set
		if err := util.Unmarshal(text, &set); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, set.Cases...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A difference is one of these, or "" for none.
const (
	otherOrder = "order" // the same once the order of all lists is left aside
	otherValue = "value"
)

// readDifferences gives the kind of each case that is listed.
func readDifferences(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.Open("testdata/opa-differences")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	listed, kind := map[string]string{}, ""
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		if note, isNote := strings.CutPrefix(line, "\t"); isNote {
			listed[note] = kind
			continue
		}
		if line != "" && !strings.HasPrefix(line, "#") {
			kind, _, _ = strings.Cut(line, ":")
		}
	}
	return listed
}

// readsInput tells whether modules look at the input, and not only replace it.
func readsInput(modules []string) bool {
	return wordInput.MatchString(strings.ReplaceAll(strings.Join(modules, "\n"), "with input", ""))
}

var wordInput = regexp.MustCompile(`\binput\b`)

// unsupportedCase is a case that can't be put to a policy.
type unsupportedCase struct{ reason string }

func (n *unsupportedCase) Error() string { return n.reason }

// outcomes are what a case wants and gets: a value as JSON, undefined or error.
type outcomes struct{ want, got string }

func (o outcomes) kind() string {
	switch {
	case o.want == o.got:
		return ""
	case unordered(o.want) == unordered(o.got):
		return otherOrder
	default:
		return otherValue
	}
}

// unordered sorts all lists, at every depth.
func unordered(text string) string {
	var value any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return text
	}
	return sortedText(value)
}

func sortedText(value any) string {
	var parts []string
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			parts = append(parts, sortedText(element))
		}
	case map[string]any:
		for key, element := range v {
			parts = append(parts, fmt.Sprintf("%q: %s", key, sortedText(element)))
		}
	default:
		return fmt.Sprintf("%T %v", value, value)
	}
	slices.Sort(parts)
	return fmt.Sprintf("%T %q", value, parts)
}

// caseRig runs cases.
type caseRig struct{ engine *Engine }

// run puts a case to a policy that is made of it. The error is a *unsupportedCase
// if that can't be done.
func (r caseRig) run(t *testing.T, c cases.TestCase) (outcomes, error) {
	p, err := r.policy(t, c)
	if err != nil {
		return outcomes{}, err
	}
	input := []byte("{}")
	if c.Input != nil {
		if input, err = json.Marshal(*c.Input); err != nil {
			t.Fatal(err)
		}
	}
	got, err := value(t.Context(), p, hookNames[0], string(input))
	wantsError := c.WantErrorCode != nil || c.WantError != nil
	if wantsError && err != nil && !errors.Is(err, errUndefined) {
		return outcomes{"error", "error"}, nil // each has its own words for it
	}
	o := outcomes{"undefined", outcome([]byte(got), err)}
	switch {
	case wantsError:
		o.want = "error"
	case c.WantResult == nil:
		return o, &unsupportedCase{"it wants no result"}
	case len(*c.WantResult) > 0:
		want, err := json.Marshal((*c.WantResult)[0]["x"])
		if err != nil {
			t.Fatal(err)
		}
		o.want = canonical(want)
	}
	return o, nil
}

func (r caseRig) policy(t *testing.T, c cases.TestCase) (*Policy, error) {
	query, isRule := strings.CutPrefix(c.Query, "data.")
	query, isBound := strings.CutSuffix(query, " = x")
	switch {
	case c.Data != nil && len(*c.Data) > 0, c.InputTerm != nil, len(c.Env) > 0:
		return nil, &unsupportedCase{"it has documents besides its input, or one that is not JSON"}
	case c.StrictError:
		return nil, &unsupportedCase{"it wants errors of built-ins, which are undefined here"}
	case !isRule || !isBound || strings.ContainsAny(query, "[ "):
		return nil, &unsupportedCase{"it asks for something else than the value of a rule"}
	case c.Input == nil && readsInput(c.Modules):
		return nil, &unsupportedCase{"it has no input, where a policy always has one"}
	}
	code, err := r.compile(t, c.Modules, strings.ReplaceAll(query, ".", "/"))
	if err != nil {
		return nil, err
	}
	return r.start(t, code), nil
}

// compile does as compileFiles does, with another package and another rule.
func (r caseRig) compile(t *testing.T, texts []string, entry string) ([]byte, error) {
	modules := map[string]*ast.Module{}
	for i, text := range texts {
		name := fmt.Sprintf("%d.rego", i)
		m, err := parseFile(File{name, text})
		if err != nil {
			return nil, &unsupportedCase{"it is not Rego version 1, or is refused for its depth"}
		}
		modules[name] = m
	}
	compiler := ast.NewCompiler().WithCapabilities(language()).WithDefaultRegoVersion(ast.RegoV1)
	if compiler.Compile(modules); compiler.Failed() {
		return nil, &unsupportedCase{"it does not compile"}
	}
	for _, m := range compiler.Modules {
		if len(checkBuiltins(m)) > 0 {
			return nil, &unsupportedCase{"it uses a built-in that policies may not use"}
		}
	}
	code, err := toWasm(t.Context(), modules, []string{entry})
	if err != nil {
		return nil, &unsupportedCase{"OPA does not compile it to WebAssembly"}
	}
	return code, nil
}

func (r caseRig) start(t *testing.T, code []byte) *Policy {
	loaded, err := r.engine.host.Load(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loaded.Close)
	m := &Module{loaded: loaded, Hooks: hookNames[:1]}
	if err := m.inspect(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := NewPolicy(t.Context(), m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
