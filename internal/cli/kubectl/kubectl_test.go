package kubectl

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
)

func TestProgramName(t *testing.T) {
	for program, want := range map[string]struct {
		name      string
		completes bool
	}{
		"/usr/bin/gleaner":                  {"gleaner", false},
		"/tmp/go-build/gleaner.test":        {"gleaner", false},
		"/usr/bin/kubectl-gleaner":          {"kubectl gleaner", false},
		"kubectl-gleaner.exe":               {"kubectl gleaner", false},
		"/usr/bin/kubectl_complete-gleaner": {"kubectl gleaner", true},
	} {
		if name, completes := ProgramName(program); name != want.name || completes != want.completes {
			t.Errorf("%s: %s, completes %t", program, name, completes)
		}
	}
}

func TestParseTarget(t *testing.T) {
	for words, want := range map[string]string{
		"deploy/web":           "deploy web",
		"deploy web":           "deploy web",
		"deployments.apps/web": "deployments.apps web",
		"":                     "usage",
		"deploy":               "usage",
		"deploy/":              "usage",
		"/web":                 "usage",
		"deploy/web/x":         "usage",
		"deploy,rs/web":        "usage",
		"deploy/a deploy/b":    "usage",
		"deploy a b":           "usage",
	} {
		kind, name, err := ParseTarget(strings.Fields(words))
		got := kind + " " + name
		if status := (exit.Error{}); errors.As(err, &status) && status.Code == exit.CodeUsage {
			got = "usage"
		}
		if got != want {
			t.Errorf("%q is %s, want %s: %v", words, got, want, err)
		}
	}
}

func TestErrorMessage_OfServerIsInKubectlFormat(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, "web")
	for want, err := range map[string]error{
		`Error from server (NotFound): deployments.apps "web" not found`:          notFound,
		`Error from server (NotFound): read it: deployments.apps "web" not found`: fmt.Errorf("read it: %w", notFound),
		"gleaner: it rains": errors.New("it rains"),
	} {
		if got := ErrorMessage("gleaner", err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestPrintError_IndentsFurtherLines(t *testing.T) {
	var out bytes.Buffer
	PrintError(&out, "gleaner", errors.Join(errors.New("first\nError from server: forged\x1b[2J"), errors.New("second")))
	want := "gleaner: first\n  Error from server: forged^[[2J\n  second\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
