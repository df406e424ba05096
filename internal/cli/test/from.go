package test

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

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/records"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/policytest"
)

// fromOptions are the flags of gleaner test --from.
type fromOptions struct {
	file    string // with records; empty: tests are run
	module  string
	records records.Flags
}

func (f *fromOptions) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.file, "from", "", "`file` with records, to convert to cases, written to --output; no tests are run")
	flags.StringVar(&f.module, "module", "", "with --from, the module `file` or directory of the cases")
	f.records.Add(flags)
}

// check rejects flags that apply only with, or only without, --from.
func (f *fromOptions) check(cmd *cobra.Command, args []string) error {
	if f.file == "" {
		for _, name := range []string{"module", "uid", "index", "policy"} {
			if cmd.Flags().Changed(name) {
				return exit.AsUsage(fmt.Errorf("--%s requires --from", name))
			}
		}
		return nil
	}
	if len(args) != 0 {
		return exit.AsUsage(fmt.Errorf("--from runs no tests: unexpected argument %q", args[0]))
	}
	for _, name := range []string{"run", "verbose", "coverage"} {
		if cmd.Flags().Changed(name) {
			return exit.AsUsage(fmt.Errorf("--%s can't be used with --from, which runs no tests", name))
		}
	}
	return nil
}

// write converts a record to cases, on standard output if out is empty.
func (f *fromOptions) write(cmd *cobra.Command, out string) error {
	entries, err := records.Read(cmd.InOrStdin(), f.file)
	if err != nil {
		return exit.AsUsage(err)
	}
	t, err := f.records.Single(entries)
	if err != nil {
		return exit.AsUsage(err)
	}
	text, err := casesOf(t, f.modulePath(out), cmd.ErrOrStderr())
	if err != nil {
		return exit.AsUsage(err)
	}
	if out == "" {
		_, err := printer.Raw(cmd.OutOrStdout()).Write(text) // YAML
		return err
	}
	file, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, os.ErrExist) {
		return exit.AsUsage(fmt.Errorf("%s already exists: set another file with --output, or remove it", out))
	}
	if err != nil {
		return fmt.Errorf("write cases: %w", err)
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// modulePath returns the path of the module relative to the directory of the cases.
func (f *fromOptions) modulePath(out string) string {
	if f.module == "" {
		return "policy.rego"
	}
	module, err := filepath.Abs(f.module)
	if err != nil {
		return f.module
	}
	dir, err := filepath.Abs(filepath.Dir(out))
	if err != nil {
		return module
	}
	if relative, err := filepath.Rel(dir, module); err == nil {
		return relative
	}
	return module
}

// recordedCase is a case as it is written to a file, with fields sorted by name.
type recordedCase struct {
	Name      string          `json:"name"`
	Request   json.RawMessage `json:"request"`
	Want      json.RawMessage `json:"want,omitempty"`
	WantFault string          `json:"wantFault,omitempty"`
}

// casesOf returns a case for each round: the request of a round contains the results of the
// previous round's intents.
func casesOf(t records.Transcript, module string, warnings io.Writer) ([]byte, error) {
	var cases []recordedCase
	for i, e := range t.Evaluation.Exchanges {
		if !e.Replayable() {
			printer.Fprintf(warnings, "skipping round %d, because its evaluation was aborted: %s\n", i+1, e.Fault)
			continue
		}
		c, err := caseOf(e)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", i+1, err)
		}
		if hasNull(e.Request) {
			printer.Fprintf(warnings, "round %d: the request has null fields, which a case can't contain\n", i+1)
		}
		c.Name = fmt.Sprintf("%s of %s at %s: %s", e.Request.Hook, t.Entry.Object, t.Entry.Time.UTC().Format(time.RFC3339), decisionOf(e))
		if len(t.Evaluation.Exchanges) > 1 {
			c.Name += fmt.Sprintf(" (round %d)", i+1)
		}
		cases = append(cases, c)
	}
	if len(cases) == 0 {
		return nil, errors.New("no round can be converted to a case")
	}
	header, err := yaml.Marshal(map[string]string{"module": module})
	if err != nil {
		return nil, fmt.Errorf("write cases: %w", err)
	}
	list, err := yaml.Marshal(map[string][]recordedCase{"cases": cases})
	if err != nil {
		return nil, fmt.Errorf("write cases: %w", err)
	}
	note := fmt.Sprintf("# Recorded evaluations of %s for %s.\n", t.Evaluation.Policy, t.Entry.Object)
	return bytes.Join([][]byte{[]byte(note), header, list}, nil), nil
}

// CasesOf converts the only module evaluation in a record to test cases. Their module is policy.rego, to be replaced.
func CasesOf(e record.Entry) ([]byte, error) {
	t, err := records.Only(e)
	if err != nil {
		return nil, err
	}
	return casesOf(t, "policy.rego", io.Discard)
}

// hasNull reports whether a request has a null field, which would delete the field in a case.
func hasNull(r hostabi.Request) bool {
	document, err := hostabi.MarshalRequest(r)
	var value any
	return err == nil && json.Unmarshal(document, &value) == nil && fieldIsNull(value)
}

func fieldIsNull(value any) bool {
	fields, _ := value.(map[string]any) // lists are not merged
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
	usual, err := defaultRequest(e.Request.Hook)
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

// defaultRequest returns the request of a case that sets only the hook.
func defaultRequest(hook hostabi.Hook) ([]byte, error) {
	cases, err := policytest.Parse(fmt.Appendf(nil, "cases: [{name: usual, request: {hook: %q}, wantFault: any}]", hook))
	if err != nil {
		return nil, err
	}
	return hostabi.MarshalRequest(cases[0].Request)
}

// mergePatch returns the JSON merge patch between two documents. It always includes the hook,
// which selects the default request of a case.
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
