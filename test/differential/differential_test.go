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
	scripts = flag.Int("scripts", 12, "random scripts to run")
	seed    = flag.Int64("seed", 1, "of the first random script; the others count up from it")
	beside  = flag.Bool("beside", false, "run Gleaner beside the other collector, and not in its place")
	file    = flag.String("script", "", "a file with a script to run instead")
)

// atOnce is how many scripts run beside each other: they wait most of the time.
const atOnce = 6

// Equal scripts end equal, on both collectors, after each of their steps.
func TestRandomScripts_LeaveTheSameBehind(t *testing.T) {
	if *file != "" {
		text, err := os.ReadFile(*file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parse(string(text))
		if err != nil {
			t.Fatal(err)
		}
		judge(t, s, run(t, s, persistence))
		return
	}
	both(t)
	var early atomic.Int64
	t.Run("scripts", func(t *testing.T) {
		turns := make(chan struct{}, atOnce)
		for i := range *scripts {
			seed := *seed + int64(i)
			t.Run(name(seed), func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
				s := generate(seed)
				out := run(t, s, persistence)
				if out.early {
					early.Add(1)
				}
				judge(t, s, out)
			})
		}
	})
	t.Logf("%d scripts, in %d of which kube-controller-manager unblocked an owner early (3.19)", *scripts, early.Load())
	if early.Load()*5 > int64(*scripts)+5 {
		t.Error("too many scripts were compared by what is safe alone")
	}
}

func judge(t *testing.T, s script, out outcome) {
	t.Helper()
	if out.difference == "" {
		return
	}
	t.Errorf("after step %d (- kube-controller-manager, + Gleaner):\n%s\nThe script:\n%s", out.after, out.difference, s)
	least := minimise(t, s[:out.after], time.Now().Add(2*time.Minute))
	again := run(t, least, time.Second)
	t.Errorf("The least script that was found to differ, to be run again with -script FILE:\n%s\n%s", least, again.difference)
}

// What is known to differ, and wanted: each file is a script and what each
// collector leaves of it, or one of several things where that is a race in it.
// docs/differential.md says why.
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
				t.Fatal("a script is followed by ---- and what is left of it")
			}
			s, err := parse(source)
			if err != nil {
				t.Fatal(err)
			}
			t.Parallel()
			out := run(t, s, time.Second)
			if out.difference == "" && !out.early {
				t.Error("nothing differs")
			}
			for i, s := range []*side{sides.theirs, sides.ours} {
				got := s.name + ": " + out.left[i].String()
				if !slices.Contains(strings.Split(want, "\n"), got) {
					t.Errorf("left is\n%s\nwant one of\n%s", got, want)
				}
			}
		})
	}
}

// A script is printed so that it can be read again.
func TestScripts_AreReadAsTheyAreWritten(t *testing.T) {
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
			t.Errorf("a seed gives two scripts: %s", diff)
		}
	}
}
