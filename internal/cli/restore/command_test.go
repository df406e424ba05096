package restore

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
)

// codeOf returns the exit code of a command, and its output.
func codeOf(t *testing.T, cmd *cobra.Command, args ...string) (code int, out string) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	err := cmd.ExecuteContext(t.Context())
	if err == nil {
		return 0, b.String()
	}
	status := exit.Error{Code: exit.CodeFailure}
	errors.As(err, &status)
	return status.Code, err.Error()
}

func TestCommand_InvalidCommandLinesAreUsageErrors(t *testing.T) {
	for args, want := range map[string]string{
		"":                             "specify exactly one of",
		"deploy/web --uid u":           "specify exactly one of",
		"--uid u --since 10m":          "specify exactly one of",
		"--uid u -n shop":              "omit -n and -A",
		"--cascade u -A":               "omit -n and -A",
		"deploy/web --dry-run=maybe":   "use none, client or server",
		"deploy":                       "invalid object",
		"--since yesterday -n shop":    "no duration and no time",
		"deploy/web -o wide":           "use json or yaml",
		"deploy/web --archive=nowhere": "write file:///FOLDER",
		"deploy/web -A -n shop":        "use one of them",
	} {
		if code, out := codeOf(t, Command(), strings.Fields(args)...); code != exit.CodeUsage || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d: %s", args, code, out)
		}
	}
	for _, args := range []string{"", "deploy/web --since 10m"} {
		if code, out := codeOf(t, UndoCommand(), strings.Fields(args)...); code != exit.CodeUsage {
			t.Errorf("undo %q: exit code %d: %s", args, code, out)
		}
	}
}

func TestSelection_Namespaces(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for claim, c := range map[string]struct {
		undo bool
		args []string
		want string // "*": all
	}{
		"a period is of the context's namespace": {false, []string{"--since=10m"}, "default"},
		"a period in all namespaces":             {false, []string{"--since=10m", "-A"}, "*"},
		"undo is for all namespaces":             {true, []string{"--since=10m"}, "*"},
		"undo in one namespace":                  {true, []string{"--since=10m", "-n=shop"}, "shop"},
	} {
		o := &options{Flags: kubectl.NewFlags(), byGleaner: c.undo}
		cmd := &cobra.Command{}
		o.addTo(cmd)
		cmd.Flags().StringVar(&o.since, "since", "", "")
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		s, err := o.selection(nil, now)
		got := "*"
		if s.namespace != nil {
			got = *s.namespace
		}
		if err != nil || got != c.want || !s.since.Equal(now.Add(-10*time.Minute)) || s.byGleaner != c.undo {
			t.Errorf("%s: %q since %s: %v", claim, got, s.since, err)
		}
	}
}

func TestReport_Documents(t *testing.T) {
	report := &Report{
		DryRun: dryRunServer, Restored: []Item{{Kind: "ConfigMap", Namespace: "shop", Name: "a", FormerUID: "old", UID: "new"}},
		Failures: []Item{{Group: "apps", Kind: "Deployment", Name: "b", Message: "quota exceeded"}},
	}
	var out bytes.Buffer
	r := &run{options: &options{Flags: kubectl.NewFlags("json", "yaml")}, out: &out}
	r.Output = "json"
	var status exit.Error
	if err := r.finish(report, 2); !errors.As(err, &status) || status.Code != exit.CodeFailure {
		t.Errorf("a failure: %v", err)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "gleaner.dev/v1alpha1", "kind": "RestoreReport", "dryRun": "server",
		"restored": []any{map[string]any{"kind": "ConfigMap", "namespace": "shop", "name": "a", "formerUID": "old", "uid": "new"}},
		"failures": []any{map[string]any{"group": "apps", "kind": "Deployment", "name": "b", "message": "quota exceeded"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReport_ManyObjectsAreCounted(t *testing.T) {
	report := &Report{Interrupted: true, Remaining: []Item{{Kind: "ConfigMap", Name: "last"}}}
	for range 60 {
		i := Item{Kind: "ConfigMap", Namespace: "shop", Name: "many"}
		report.Planned = append(report.Planned, i)
		report.Left = append(report.Left, i.with("is left alone"))
	}
	var out bytes.Buffer
	report.printPlan(&out)
	report.printResult(&out, 61)
	want := `60 objects are to be restored (ConfigMap: 60).

Left alone:
  60 objects (ConfigMap: 60): each is left alone
Restored 0 objects; 60 left alone; 1 not attempted.
Interrupted after 60 of 61 objects. Run the command again to continue: objects that were restored are recognized.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestProgressBar_ShowsTheShare(t *testing.T) {
	for want, done := range map[string]int{
		"[                              ] 0 of 4": 0,
		"[===============               ] 2 of 4": 2,
		"[==============================] 4 of 4": 4,
	} {
		if got := progressBar(done, 4); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := progressBar(0, 0); !strings.HasSuffix(got, "0 of 0") {
		t.Errorf("nothing to do: %q", got)
	}
}
