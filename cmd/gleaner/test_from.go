package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/policytest"
)

// fromOptions are the flags of gleaner test --from.
type fromOptions struct {
	file    string // of records; empty: tests are run
	module  string
	records recordFlags
}

func (f *fromOptions) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.file, "from", "", "run nothing: make a `record` of a cluster into a file of cases, which --output names")
	flags.StringVar(&f.module, "module", "", "with --from, the `file` or folder of the module that the cases are for")
	f.records.add(flags)
}

// check refuses flags that are only for the other use of the command.
func (f *fromOptions) check(cmd *cobra.Command, args []string) error {
	if f.file == "" {
		for _, name := range []string{"module", "uid", "index", "policy"} {
			if cmd.Flags().Changed(name) {
				return usageError{fmt.Errorf("--%s is for --from, which makes a record into cases", name)}
			}
		}
		return nil
	}
	if len(args) != 0 {
		return usageError{fmt.Errorf("--from runs no tests, so %q is of no use: run them when the cases are there", args[0])}
	}
	for _, name := range []string{"run", "verbose", "coverage"} {
		if cmd.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s is of no use with --from, which runs no tests", name)}
		}
	}
	return nil
}

// write makes the record into cases: on standard output if out is empty.
func (f *fromOptions) write(cmd *cobra.Command, out string) error {
	entries, err := readEntries(cmd.InOrStdin(), f.file)
	if err != nil {
		return usageError{err}
	}
	t, err := f.records.one(entries)
	if err != nil {
		return usageError{err}
	}
	text, err := casesOf(t, f.moduleSeenFrom(out), cmd.ErrOrStderr())
	if err != nil {
		return usageError{err}
	}
	if out == "" {
		_, err := kubectl.Raw(cmd.OutOrStdout()).Write(text) // YAML
		return err
	}
	file, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, os.ErrExist) {
		return usageError{fmt.Errorf("%s is there already: name another file with --output, or remove it", out)}
	}
	if err != nil {
		return fmt.Errorf("write cases: %w", err)
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// moduleSeenFrom is the module's name from the folder of the cases.
func (f *fromOptions) moduleSeenFrom(out string) string {
	if f.module == "" {
		return "policy.rego"
	}
	module, err := filepath.Abs(f.module)
	if err != nil {
		return f.module
	}
	folder, err := filepath.Abs(filepath.Dir(out))
	if err != nil {
		return module
	}
	if relative, err := filepath.Rel(folder, module); err == nil {
		return relative
	}
	return module
}

// recordedCase is a case as a file has it. Its fields are written in the order of
// their names.
type recordedCase struct {
	Name      string          `json:"name"`
	Request   json.RawMessage `json:"request"`
	Want      json.RawMessage `json:"want,omitempty"`
	WantFault string          `json:"wantFault,omitempty"`
}

// casesOf writes a case for each round: the results of the intents of one are in
// the request of the next.
func casesOf(t transcript, module string, warnings io.Writer) ([]byte, error) {
	var cases []recordedCase
	for i, e := range t.asked.Exchanges {
		if !e.Repeats() {
			kubectl.Fprintf(warnings, "round %d is left out, since it was broken off: %s\n", i+1, e.Fault)
			continue
		}
		c, err := caseOf(e)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", i+1, err)
		}
		if hasNull(e.Request) {
			kubectl.Fprintf(warnings, "round %d: the request has fields that are null, which a case leaves out\n", i+1)
		}
		c.Name = fmt.Sprintf("%s of %s at %s: %s", e.Request.Hook, t.entry.Object, t.entry.Time.UTC().Format(time.RFC3339), decisionOf(e))
		if len(t.asked.Exchanges) > 1 {
			c.Name += fmt.Sprintf(" (round %d)", i+1)
		}
		cases = append(cases, c)
	}
	if len(cases) == 0 {
		return nil, errors.New("no round is left to make a case of")
	}
	header, err := yaml.Marshal(map[string]string{"module": module})
	if err != nil {
		return nil, fmt.Errorf("write cases: %w", err)
	}
	list, err := yaml.Marshal(map[string][]recordedCase{"cases": cases})
	if err != nil {
		return nil, fmt.Errorf("write cases: %w", err)
	}
	note := fmt.Sprintf("# %s was asked this about %s.\n", t.asked.Policy, t.entry.Object)
	return bytes.Join([][]byte{[]byte(note), header, list}, nil), nil
}

// hasNull reports whether a request has a field that is null: in a case, that
// takes a field out.
func hasNull(r hostabi.Request) bool {
	document, err := hostabi.MarshalRequest(r)
	var value any
	return err == nil && json.Unmarshal(document, &value) == nil && fieldIsNull(value)
}

func fieldIsNull(value any) bool {
	fields, _ := value.(map[string]any) // lists are taken as they are
	for _, field := range fields {
		if field == nil || fieldIsNull(field) {
			return true
		}
	}
	return false
}

func decisionOf(e policies.Exchange) string {
	if e.Fault != "" {
		return "a fault"
	}
	return string(e.Verdict.Decision)
}

func caseOf(e policies.Exchange) (recordedCase, error) {
	var c recordedCase
	usual, err := usualRequest(e.Request.Hook)
	if err != nil {
		return c, err
	}
	own, err := hostabi.MarshalRequest(e.Request)
	if err != nil {
		return c, err
	}
	if c.Request, err = mergePatch(usual, own); err != nil {
		return c, err
	}
	if e.Fault != "" {
		c.WantFault = e.Fault
		return c, nil
	}
	c.Want, err = hostabi.MarshalVerdict(e.Verdict)
	return c, err
}

// usualRequest is what a case asks that says no more than the hook.
func usualRequest(hook hostabi.Hook) ([]byte, error) {
	cases, err := policytest.Parse(fmt.Appendf(nil, "cases: [{name: usual, request: {hook: %q}, wantFault: any}]", hook))
	if err != nil {
		return nil, err
	}
	return hostabi.MarshalRequest(cases[0].Request)
}

// mergePatch is the merge patch that leads from one document to another. It always
// has the hook, which says what a case starts from.
func mergePatch(from, to []byte) ([]byte, error) {
	var was, is map[string]any
	if err := errors.Join(decodeDocument(from, &was), decodeDocument(to, &is)); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	patch := patchFrom(was, is)
	patch["hook"] = is["hook"]
	return json.Marshal(patch)
}

func patchFrom(was, is map[string]any) map[string]any {
	patch := map[string]any{}
	for name := range was {
		if _, stays := is[name]; !stays {
			patch[name] = nil
		}
	}
	for name, value := range is {
		before, known := was[name]
		if known && reflect.DeepEqual(before, value) {
			continue
		}
		fields, isObject := value.(map[string]any)
		if !isObject {
			patch[name] = value
			continue
		}
		beforeFields, _ := before.(map[string]any)
		patch[name] = patchFrom(beforeFields, fields)
	}
	return patch
}

func decodeDocument(data []byte, into any) error {
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	return d.Decode(into)
}
