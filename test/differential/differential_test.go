package differential

import (
	"flag"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	scripts       = flag.Int("scripts", 12, "number of random scripts to run")
	seed          = flag.Int64("seed", 1, "seed of the first random script; the others have consecutive seeds")
	companionMode = flag.Bool("companion", false, "run Gleaner in companion mode with the built-in collector, instead of alone")
	cascades      = flag.Int("cascades", 15, "number of cascades that random scripts are to complete with Gleaner alone")
	file          = flag.String("script", "", "file with a script to run instead")
)

// parallelScripts is the number of parallel scripts: they wait most of the time.
const parallelScripts = 6

// Equal scripts have equal results with both collectors, after each step.
func TestRandomScripts_HaveEqualResults(t *testing.T) {
	if *file != "" {
		text, err := os.ReadFile(*file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parse(string(text))
		if err != nil {
			t.Fatal(err)
		}
		reportOutcome(t, s, runUntilFair(t, s))
		return
	}
	bothSides(t)
	var early atomic.Int64
	t.Run("scripts", func(t *testing.T) {
		turns := make(chan struct{}, parallelScripts)
		for i := range *scripts {
			seed := *seed + int64(i)
			t.Run(name(seed), func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
				s := generate(seed)
				out := runUntilFair(t, s)
				if out.early {
					early.Add(1)
				}
				reportOutcome(t, s, out)
			})
		}
	})
	if c := sides.own.cascades; c != nil {
		c.verify(t)
	}
	t.Logf("%d scripts, in %d of which kube-controller-manager unblocked an owner early (3.19)", *scripts, early.Load())
	if early.Load()*5 > int64(*scripts)+5 {
		t.Error("too many scripts were compared for unsafe deletes only")
	}
}

func reportOutcome(t *testing.T, s script, out outcome) {
	t.Helper()
	if out.difference == "" {
		return
	}
	t.Errorf("after step %d (- kube-controller-manager, + Gleaner):\n%s\nThe script:\n%s", out.after, out.difference, s)
	least := minimize(t, s[:out.after], time.Now().Add(2*time.Minute))
	again := run(t, least, time.Second)
	t.Errorf("The smallest script that differs, to run with -script FILE:\n%s\n%s", least, again.difference)
}

// Known and intended differences: each file is a script and the state that each
// collector leaves, or several states if the result depends on a race.
// For the reasons, see docs/differential.md.
func TestKnownDifferences(t *testing.T) {
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		t.Run(entry.Name(), func(t *testing.T) {
			text, err := os.ReadFile("testdata/" + entry.Name())
			if err != nil {
				t.Fatal(err)
			}
			source, want, found := strings.Cut(string(text), "----\n")
			if !found {
				t.Fatal("script must be followed by ---- and the final state")
			}
			s, err := parse(source)
			if err != nil {
				t.Fatal(err)
			}
			t.Parallel()
			out := run(t, s, time.Second)
			if out.difference == "" && !out.early {
				t.Error("no difference")
			}
			for i, s := range []*side{sides.theirs, sides.own} {
				got := s.name + ": " + out.left[i].String()
				if !slices.Contains(strings.Split(want, "\n"), got) {
					t.Errorf("got\n%s\nwant one of\n%s", got, want)
				}
			}
		})
	}
}

// A printed script can be parsed.
func TestScripts_RoundTrip(t *testing.T) {
	for seed := range int64(100) {
		s := generate(seed)
		again, err := parse(s.String())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.String(), again.String()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(s.String(), generate(seed).String()); diff != "" {
			t.Errorf("seed gives different scripts: %s", diff)
		}
	}
}
