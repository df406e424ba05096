package doctor

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
)

// served is what an API server answers, by path; what is not in it is not found.
type served map[string]any

// checkerAt is one whose API server gives these answers.
func checkerAt(t *testing.T, answers served) *checker {
	t.Helper()
	return asking(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, there := answers[r.URL.Path]
		if !there {
			answer = metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
			}
			w.WriteHeader(http.StatusNotFound)
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	})
}

func asking(t *testing.T, answer http.HandlerFunc) *checker {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	p := &checker{Options: Options{Config: &rest.Config{Host: server.URL}}, resources: &finalizers.Resources{}}
	if err := p.connect(); err != nil {
		t.Fatal(err)
	}
	return p
}

// wantFindings compares how bad findings are, and looks for words in the first of them.
func wantFindings(t *testing.T, got []Finding, words string, want ...Severity) {
	t.Helper()
	var severities []Severity
	for _, f := range got {
		severities = append(severities, f.Severity)
		if (f.Severity == Problem || f.Severity == Warning) && f.Advice == "" {
			t.Errorf("it does not say what to do: %s", f.Message)
		}
	}
	if diff := cmp.Diff(want, severities); diff != "" {
		t.Fatalf("(-want +got):\n%s\n%v", diff, got)
	}
	if !strings.Contains(got[0].Message, words) {
		t.Errorf("it does not say %q: %s", words, got[0].Message)
	}
}

func TestClock_ComparesWithAPIServer(t *testing.T) {
	const long = 10 * time.Minute // many times what a machine that is busy takes to answer
	for claim, c := range map[string]struct {
		server  time.Duration // its clock, before this machine's
		replica time.Duration // the same
		words   string
		want    []Severity
	}{
		"all agree":                                   {0, 0, "clocks are within 5s", []Severity{OK}},
		"this machine's is behind":                    {long, long, "this machine's clock is", []Severity{Warning}},
		"this machine's is ahead":                     {-long, -long, "ahead of the API server's", []Severity{Warning}},
		"a replica's is far behind":                   {0, -long, "the clock of gleaner-0 is", []Severity{Problem}},
		"a replica's is some seconds ahead":           {0, 30 * time.Second, "ahead of the API server's", []Severity{Warning}},
		"a replica agrees with this machine's, wrong": {long, 0, "this machine's clock is", []Severity{Warning, Problem}},
	} {
		t.Run(claim, func(t *testing.T) {
			p := asking(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", time.Now().Add(c.server).UTC().Format(http.TimeFormat))
			})
			p.health = []replicas.Health{{Replica: "gleaner-0", ClockAhead: &c.replica}}
			wantFindings(t, p.clock(t.Context()), c.words, c.want...)
		})
	}
}

// What is not known is no agreement.
func TestClock_NoDateHeaderIsUnknown(t *testing.T) {
	for claim, date := range map[string][]string{"it says none": nil, "it says nonsense": {"today"}} {
		t.Run(claim, func(t *testing.T) {
			p := asking(t, func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = date })
			wantFindings(t, p.clock(t.Context()), "can't read the time", Unknown)
		})
	}
}

func TestClock_UnknownClockIsNoFinding(t *testing.T) {
	p := asking(t, func(http.ResponseWriter, *http.Request) {})
	far := time.Hour
	p.health = []replicas.Health{{Replica: "silent"}, {Replica: "away", ClockAhead: &far, Err: http.ErrServerClosed}}
	wantFindings(t, p.clock(t.Context()), "clocks are within", OK)
}

func TestServer_UntestedVersionIsWarning(t *testing.T) {
	for version, want := range map[string]Severity{"v1.32.9": Warning, "v1.33.0": OK, "v1.34.4": OK, "v1.35.9": OK, "v1.36.0": OK, "v1.37.9-eks-1234": OK, "v1.38.0": Warning, "v1.40.1-eks-1234": Warning} {
		wantFindings(t, checkerAt(t, served{"/version": map[string]string{"gitVersion": version}}).server(t.Context()), version, want)
	}
	wantFindings(t, checkerAt(t, nil).server(t.Context()), "can't read the version", Problem)
}

func TestMigration_WarnsInPrimaryMode(t *testing.T) {
	groups := served{"/apis": metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "storagemigration.k8s.io"}}}, "/api": metav1.APIVersions{}}
	for claim, c := range map[string]struct {
		known, companion bool
		want             Severity
	}{
		"beside another collector": {true, true, OK},
		"in place of it":           {true, false, Warning},
		"it is not known":          {false, false, Warning},
	} {
		t.Run(claim, func(t *testing.T) {
			p := checkerAt(t, groups)
			p.modeKnown, p.setup.Companion = c.known, c.companion
			wantFindings(t, p.migration(t.Context()), "StorageVersionMigration", c.want)
		})
	}
	p := checkerAt(t, served{"/apis": metav1.APIGroupList{}, "/api": metav1.APIVersions{}})
	p.modeKnown = true
	wantFindings(t, p.migration(t.Context()), "no conflict", OK)
}

func TestServer_NewestTestedVersionIsThatOfTheTests(t *testing.T) {
	mod, err := os.ReadFile("../../../devcluster/binaries/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("\tk8s.io/kubernetes v1.%d.", newestTested); !strings.Contains(string(mod), want) {
		t.Errorf("control planes of tests have another version than 1.%d", newestTested)
	}
}

// docs/install.md has a row for each version, such as "| 1.36.3 | … | pass".
func TestServer_TestedVersionsAreThoseOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	var passed []uint
	for _, row := range regexp.MustCompile(`(?m)^\| 1\.(\d+)\.\d+ \|.*\| pass`).FindAllStringSubmatch(string(text), -1) {
		minor, err := strconv.ParseUint(row[1], 10, 0)
		if err != nil {
			t.Fatal(err)
		}
		passed = append(passed, uint(minor))
	}
	slices.Sort(passed)
	var tested []uint
	for minor := oldestTested; minor <= newestTested; minor++ {
		tested = append(tested, minor)
	}
	if !slices.Equal(passed, tested) {
		t.Errorf("docs/install.md says that versions %v passed, and gleaner doctor %v", passed, tested)
	}
}
