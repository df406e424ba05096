package main

import (
	"bytes"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sample is a report with a figure of each form.
func sample() *report {
	r := &report{}
	for contender, value := range map[string]float64{upstreamName: 500, gleanerName: 1000, floorName: 1250} {
		r.add(contender, "background, objects/s", value)
	}
	r.add(upstreamName, "background, API calls/object", 2)
	r.add(gleanerName, "background, API calls/object", 1)
	r.tables = append(r.tables, table{
		columns: []string{"1000 objects", "seconds", "a backlog, objects/s", "of by hand", "API calls"},
		rows:    [][]string{{"by hand", "1", "900", "", "1.00"}, {"Rego", "2", "450", "50 %", "2.02"}},
	})
	r.notes = []string{"background, objects/s, Rego, needs: Object: 1200 (85 % of no policy)", "seconds until one more policy is in force: 0.27", "nothing (50 % of it) was measured"}
	return r
}

func TestComparable_HasWhatDependsLittleOnTheMachine(t *testing.T) {
	want := map[string]float64{
		"background, objects/s, of " + upstreamName: 2, "background, objects/s, of " + floorName: 0.8, "background, API calls/object": 1,
		"1000 objects, Rego, a backlog, objects/s, of by hand": 0.5, "1000 objects, Rego, API calls": 2.02, "1000 objects, by hand, API calls": 1,
		"background, objects/s, Rego, needs: Object": 0.85,
	}
	if diff := cmp.Diff(want, sample().comparable()); diff != "" {
		t.Error(diff)
	}
}

func TestRecord_IsComparedWithTheNextRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "recorded.json")
	if none, err := readRecord(file); none != nil || err != nil {
		t.Fatalf("got %v, %v before the first run", none, err)
	}
	all := sample().comparable()
	all["large"] = 2
	if err := (record{Date: "2026-01-02", Machine: "2 cores", Figures: all}).write(file); err != nil {
		t.Fatal(err)
	}
	part := map[string]float64{"large": 3, "background, API calls/object": 1}
	recorded, err := readRecord(file)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	recorded.printChanges(&out, part)
	for _, text := range []string{"2026-01-02 (2 cores): 1 figures are the same", "1 are not", "| large | 2.00 | 3.00 | 1.50 |"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("got %q, want %q in it", out.String(), text)
		}
	}
	if err := (record{Date: "2026-01-03", Figures: part}).write(file); err != nil {
		t.Fatal(err)
	}
	recorded, err = readRecord(file)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, part)
	if diff := cmp.Diff(all, recorded.Figures); diff != "" || recorded.Date != "2026-01-03" {
		t.Errorf("after a run of some parts, of %s: %s", recorded.Date, diff)
	}
}
