package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/filestore"
	"github.com/gleaner-dev/gleaner/operator/record"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func object(namespace, name string) record.Object {
	return record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: name, UID: types.UID("u-" + name)}
}

// newStore returns the location of a store, which no process has open, with a cascade of two
// deletions, a decision that a policy in Monitor mode would have made otherwise, and another.
func newStore(t *testing.T) string {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	ring := record.NewStore(record.Limits{})
	dir := t.TempDir()
	w, err := filestore.Open(dir, filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range []record.Entry{
		{Object: object("shop", "child"), Owners: []record.Owner{{Object: object("shop", "root"), Status: "Absent"}}},
		{Object: object("shop", "grandchild"), Owners: []record.Owner{{Object: object("shop", "child"), Status: "Absent"}}},
		{Object: object("other", "monitored"), Owners: []record.Owner{{Object: object("other", "o"), Status: "Absent"}}, Evaluations: []record.Evaluation{{Policy: "ClusterGCPolicy keep", Mode: "Monitor", Decision: "Orphan"}}},
		{Object: object("other", "kept"), Reason: "KeptByPolicy", Action: record.DropReferences, Policy: "ClusterGCPolicy stay", Evaluations: []record.Evaluation{{Policy: "ClusterGCPolicy stay", Mode: "Enforce", Decision: "Orphan"}}},
	} {
		e.Time = start.Add(time.Duration(i) * time.Minute)
		if e.Action == "" {
			e.Action, e.Reason, e.Detail, e.Result = record.Delete, "OwnersAbsent", "Background", "Done"
		}
		e, _ = ring.Add(e)
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Append(t.Context(), archive.Record{Time: e.Time, UID: e.Object.UID, JSON: data}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return "file://" + dir
}

// run runs gleaner records.
func run(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	cmd := Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	err := cmd.ExecuteContext(t.Context())
	if err == nil {
		return b.String(), 0
	}
	status := exit.Error{Code: exit.CodeFailure}
	errors.As(err, &status)
	return b.String() + err.Error(), status.Code
}

func TestRecords_Selections(t *testing.T) {
	at := newStore(t)
	const child, grandchild, monitored, kept = "configmap/child ", "configmap/grandchild ", "configmap/monitored ", "configmap/kept "
	for args, want := range map[string]string{
		"-A":                               child + grandchild + monitored + kept,
		"-n shop":                          child + grandchild,
		"configmap/child -n shop":          child,
		"ConfigMaps kept -n other":         kept,
		"pod/child -n shop":                "",
		"--uid u-kept":                     kept,
		"--cascade u-root":                 child + grandchild,
		"--owner u-child":                  grandchild,
		"--owner configmap/root -n shop":   child + grandchild, // the root is in the chain of both
		"-A --policy stay":                 kept,
		"-A --policy ClusterGCPolicy_keep": monitored,
		"-A --reason KeptByPolicy":         kept,
		"-A --would":                       monitored,
		"-A --limit 1":                     kept,
		"-A --since 2026-01-02T03:06:05Z":  monitored + kept,
		"-A --until 2026-01-02T03:05:05Z":  child,
		"-A --since 2026-01-02T03:05:05Z --until 2026-01-02T03:06:05Z": grandchild,
	} {
		list := strings.Fields(args)
		for i := range list {
			list[i] = strings.ReplaceAll(list[i], "_", " ")
		}
		out, code := run(t, append(list, "-o", "name", "--archive", at)...)
		if got := strings.Join(strings.Fields(out), " "); got != strings.TrimSpace(want) || code != 0 {
			t.Errorf("%s: exit code %d\n got %s\nwant %s", args, code, got, want)
		}
	}
}

func TestRecords_InvalidCommandLines(t *testing.T) {
	at := newStore(t)
	for _, args := range []string{"-A -n shop", "a/b/c", "--limit -1", "--since soon", "--until soon", "--follow --until 1h", "-o xml"} {
		if out, code := run(t, append(strings.Fields(args), "--archive", at)...); code != exit.CodeUsage {
			t.Errorf("%s: exit code %d: %s", args, code, out)
		}
	}
	if out, code := run(t, "-A", "--archive", "file://"+filepath.Join(t.TempDir(), "none")); code != exit.CodeFailure {
		t.Errorf("a store that does not exist: exit code %d: %s", code, out)
	}
}

func TestRecords_TableAndDocument(t *testing.T) {
	at := newStore(t)
	out, _ := run(t, "-A", "--archive", at, "--limit", "2")
	for _, want := range []string{"Delete (Background)", "Orphan by ClusterGCPolicy keep", "ConfigMap other/o is absent", "There are older records"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if out, _ := run(t, "--cascade", "u-root", "--archive", at, "-o", "wide"); !strings.Contains(out, "u-root") || !strings.Contains(out, "configmap/child (Absent)") {
		t.Errorf("wide:\n%s", out)
	}
	out, _ = run(t, "-A", "--archive", at, "-o", "json")
	var got list
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Items) != 4 || got.Kind != "RecordList" || !got.Since.Equal(start) || got.Items[1].Root != "u-root" {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _ := run(t, "-n", "nowhere", "--archive", at); out != "No records found. The records begin at 2026-01-02T03:04:05Z.\n" {
		t.Errorf("nothing: %q", out)
	}
}

func TestHostileRecords_AreEscaped(t *testing.T) {
	l := printertest.Filled[list]()
	for _, format := range []string{"", "wide", "name"} {
		var out bytes.Buffer
		if err := l.write(&out, format); err != nil {
			t.Fatal(err)
		}
		printertest.CheckHarmless(t, format, out.String())
	}
}
