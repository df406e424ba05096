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
)

func TestHowItWasCalledIsToldByTheName(t *testing.T) {
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
		if name, completes := Called(program); name != want.name || completes != want.completes {
			t.Errorf("%s: %s, completes %t", program, name, completes)
		}
	}
}

func TestAnObjectIsNamedAsForKubectl(t *testing.T) {
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
		kind, name, err := Named(strings.Fields(words))
		got := kind + " " + name
		if exit := (Exit{}); errors.As(err, &exit) && exit.Code == ExitUsage {
			got = "usage"
		}
		if got != want {
			t.Errorf("%q is %s, want %s: %v", words, got, want, err)
		}
	}
}

func TestAnErrorOfTheServerReadsAsKubectlHasIt(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, "web")
	for want, err := range map[string]error{
		`Error from server (NotFound): deployments.apps "web" not found`:          notFound,
		`Error from server (NotFound): read it: deployments.apps "web" not found`: fmt.Errorf("read it: %w", notFound),
		"gleaner: it rains": errors.New("it rains"),
	} {
		if got := Message("gleaner", err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestATableLeavesOutWhatIsEmpty(t *testing.T) {
	table := Table{Header: []string{"A", "EMPTY", "LAST"}}
	table.Add(Cell{Text: "├─x"}, Cell{}, Cell{Text: "y", Color: Bad})
	table.Add(Cell{Text: "long one"}, Cell{}, Cell{})
	var plain, coloured bytes.Buffer
	if err := errors.Join(table.Write(&plain, Palette{}), table.Write(Guard(&coloured), Palette{on: true})); err != nil {
		t.Fatal(err)
	}
	want := "A          LAST\n├─x        y\nlong one\n"
	if diff := cmp.Diff(want, plain.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(coloured.String()); got != want || got == coloured.String() {
		t.Errorf("with colours it is\n%s", coloured.String())
	}
}

func TestColoursAreForTerminalsAlone(t *testing.T) {
	t.Setenv("TERM", "xterm")
	var out bytes.Buffer
	if PaletteFor(&out).on {
		t.Error("what is no terminal is coloured")
	}
}

func TestADocumentIsWrittenAsJSONOrYAML(t *testing.T) {
	document := struct {
		Document `json:",inline"`
		N        int `json:"count"`
	}{DocumentOf("Thing"), 1}
	for format, want := range map[string]string{
		"json": "{\n    \"apiVersion\": \"gleaner.dev/v1alpha1\",\n    \"kind\": \"Thing\",\n    \"count\": 1\n}\n",
		"yaml": "apiVersion: gleaner.dev/v1alpha1\ncount: 1\nkind: Thing\n",
	} {
		var out bytes.Buffer
		if err := Write(&out, format, document); err != nil || out.String() != want {
			t.Errorf("%s: %v\n%s", format, err, &out)
		}
	}
}
