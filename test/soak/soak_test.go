package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/test/program"
)

// A short run of the test that "make soak" runs for half an hour: 15 seconds, or GLEANER_TEST_SOAK
// (3m in "make test-all"). It is too short to find slow leaks, and ends before the first replaced
// module is released, after five minutes: the limits are wider.
func TestSoak_LosesNothing(t *testing.T) {
	length := 15 * time.Second
	if text := os.Getenv("GLEANER_TEST_SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	silenceClients()
	if _, err := devcluster.Build(t.Context(), os.Stderr); err != nil { // the first build takes minutes
		t.Fatal(err)
	}
	var gleaner program.Gleaner
	defer func() {
		if err := gleaner.Remove(); err != nil {
			t.Error(err)
		}
	}()
	s := settings{
		length: length, every: time.Second, collector: primary, binary: gleaner.Path(t),
		folder: filepath.Join(t.TempDir(), "out"), waves: 2, size: 1, progress: t.Output(),
	}
	r, err := soak(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	r.slack = 8
	r.print(&output)
	t.Log(output.String())
	if !r.passed() {
		t.Error("see the table above")
	}
	if r.waves < 2 || r.faults == 0 || r.policyChanges == 0 {
		t.Errorf("only %d waves, %d faults and %d changes of policies", r.waves, r.faults, r.policyChanges)
	}
	for _, name := range []string{"samples.csv", "chart.svg"} {
		if content, err := os.ReadFile(filepath.Join(s.folder, name)); err != nil || !strings.Contains(string(content), "goroutines") {
			t.Errorf("%s: %q, %v", name, content, err)
		}
	}
}

func TestResult_FailsOnGrowth(t *testing.T) {
	const files = "open files"
	for name, c := range map[string]struct {
		value func(minute int) float64
		want  bool
	}{
		"a flat line": {func(int) float64 { return 30 }, true},
		"a cache that fills up in the first quarter": {func(m int) float64 { return min(30+float64(m), 45) }, true},
		"noise":                {func(m int) float64 { return 30 + 20*float64(m%3) }, true},
		"one file each minute": {func(m int) float64 { return 30 + float64(m) }, false},
		"a step in the middle": {func(m int) float64 { return 30 + 15*float64(m/35) }, false},
		"less than at first":   {func(m int) float64 { return 300 - float64(m) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &result{}
			for m := range 60 {
				r.samples = append(r.samples, sample{at: time.Duration(m) * time.Minute, values: map[string]float64{files: c.value(m)}})
			}
			if got := r.passed(); got != c.want {
				t.Errorf("passed is %t, want %t: %+v", got, c.want, growths(r.samples))
			}
		})
	}
}

func TestResult_FailsWithoutSamples(t *testing.T) {
	if (&result{}).passed() {
		t.Error("result without samples passed")
	}
}

func TestSample_IsParsedFromMetrics(t *testing.T) {
	text := `# HELP go_goroutines Number of goroutines.
process_resident_memory_bytes 1.048576e+08
go_memstats_heap_inuse_bytes 2.097152e+06
go_memstats_heap_objects 5000
go_goroutines 42
process_open_fds 7
gleaner_graph_objects{state="seen"} 3
gleaner_graph_objects{state="named"} 1
gleaner_queue_oldest_seconds 0
gleaner_records 500
gleaner_record_transcript_bytes 524288
`
	got, err := sampleOf(text)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"resident memory, MiB": 100, "heap in use, MiB": 2, "heap objects, thousands": 5, "goroutines": 42, "open files": 7,
		"objects in the graph": 3, "owners named only": 1, "oldest work, s": 0, "records, thousands": 0.5, "transcripts, MiB": 0.5, "metric series": 10,
	}
	if diff := cmp.Diff(want, got.values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if _, err := sampleOf(strings.Replace(text, "go_goroutines 42\n", "", 1)); err == nil {
		t.Error("missing metric was read as 0")
	}
}
