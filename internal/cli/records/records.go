// Package records implements gleaner records, which lists decision records. It also reads them from
// files, and selects the evaluations of modules in them.
package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// Flags select records.
type Flags struct {
	uid, policy string
	index       int
}

// Add adds the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.uid, "uid", "", "select the records of the object with this `UID`")
	flags.IntVar(&f.index, "index", -1, "select the record at this `position`, starting at 0")
	flags.StringVar(&f.policy, "policy", "", "select the evaluations of this `policy` or finalizer, such as \"ClusterGCPolicy keep\" or just \"keep\"")
}

// Object returns what the flags select of objects.
func (f *Flags) Object() record.ObjectQuery { return record.ObjectQuery{UID: types.UID(f.uid)} }

// Read reads a record, a list of records, or a response of the records endpoint.
func Read(in io.Reader, file string) ([]record.Entry, error) {
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(in)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	entries, err := parseEntries(data)
	if err != nil {
		return nil, fmt.Errorf("read records: %s: %w", file, err)
	}
	return entries, nil
}

var errNoRecord = errors.New("no records found: save the response of /debug/gc/records?exchanges=true, or one of its items")

func parseEntries(data []byte) ([]record.Entry, error) {
	var entries []record.Entry
	if strings.HasPrefix(strings.TrimSpace(string(data)), "[") {
		if err := json.Unmarshal(data, &entries); err != nil {
			return nil, err
		}
	} else {
		var either struct {
			record.Entry
			Items []record.Entry `json:"items"`
		}
		if err := json.Unmarshal(data, &either); err != nil {
			return nil, err
		}
		entries = either.Items
		if either.Object.Kind != "" {
			entries = append(entries, either.Entry)
		}
	}
	if len(entries) == 0 {
		return nil, errNoRecord
	}
	return entries, nil
}

// Transcript is the evaluation of one policy's module in a record.
type Transcript struct {
	index      int // of the entry, in its file
	Entry      record.Entry
	Evaluation record.Evaluation
}

// String identifies the evaluation.
func (t Transcript) String() string {
	return fmt.Sprintf("--index=%d  %s  %s (uid %s), %s", t.index, t.Entry.Time.UTC().Format(time.RFC3339),
		t.Entry.Object, t.Entry.Object.UID, t.Evaluation.Policy)
}

// selected returns the transcripts that the flags select, replayable or not.
func (f *Flags) selected(entries []record.Entry) ([]Transcript, error) {
	if f.index >= len(entries) {
		return nil, fmt.Errorf("--index=%d: out of range: there are %s, starting at 0", f.index, printer.Count(len(entries), "record", "records"))
	}
	var found []Transcript
	var others []string
	for i, e := range entries {
		if f.index >= 0 && f.index != i || f.uid != "" && f.uid != string(e.Object.UID) {
			continue
		}
		for _, a := range e.Evaluations {
			switch {
			case a.Module == "":
			case f.policy == "" || f.policy == a.Policy || strings.HasSuffix(a.Policy, " "+f.policy):
				found = append(found, Transcript{i, e, a})
			default:
				others = append(others, a.Policy)
			}
		}
	}
	switch {
	case len(found) != 0:
		return found, nil
	case len(others) != 0:
		return nil, fmt.Errorf("--policy=%s: not found: use --policy=%q, or omit it", f.policy, others[0])
	default:
		return nil, fmt.Errorf("none of the %s contains an evaluation of a module: policies with fixed verdicts have none",
			printer.Count(len(entries), "record", "records"))
	}
}

// Single returns the transcript that the flags select. It must be the only one.
func (f *Flags) Single(entries []record.Entry) (Transcript, error) {
	found, err := f.selected(entries)
	if err != nil {
		return Transcript{}, err
	}
	if len(found) == 1 {
		return found[0], found[0].notReplayable()
	}
	var lines strings.Builder
	single := true // entry
	for _, t := range found {
		printer.Fprintf(&lines, "\n  %s", t)
		single = single && t.index == found[0].index
	}
	if single {
		return Transcript{}, fmt.Errorf("several policies were evaluated: select one with --policy%s", &lines)
	}
	return Transcript{}, fmt.Errorf("there are several evaluations of modules: select one with --index, --uid or --policy%s", &lines)
}

// Only returns the only evaluation of a module in an entry.
func Only(e record.Entry) (Transcript, error) { return (&Flags{index: -1}).Single([]record.Entry{e}) }

// AllReplayable returns all replayable transcripts that the flags select. It prints which are skipped.
func (f *Flags) AllReplayable(entries []record.Entry, left io.Writer) ([]Transcript, error) {
	found, err := f.selected(entries)
	if err != nil {
		return nil, err
	}
	var whole []Transcript
	for _, t := range found {
		if lacks := t.notReplayable(); lacks != nil {
			printer.Fprintf(left, "skipped: %v\n", lacks)
			continue
		}
		whole = append(whole, t)
	}
	if len(whole) == 0 {
		return nil, errors.New("none of the records can be replayed")
	}
	return whole, nil
}

// isPolicy reports whether the module was evaluated for a policy rather than a finalizer.
func (t Transcript) isPolicy() bool {
	kind, _, _ := strings.Cut(t.Evaluation.Policy, " ")
	return kind == "GCPolicy" || kind == "ClusterGCPolicy"
}

// notReplayable returns why the transcript is not replayable, and what to do; nil if it is.
func (t Transcript) notReplayable() error {
	what := fmt.Sprintf("%s, %s", t.Entry.Object, t.Evaluation.Policy)
	switch {
	case t.Evaluation.Rounds == 0:
		return fmt.Errorf("%s: its module was not evaluated because of an earlier fault: %s", what, t.Evaluation.Fault)
	case t.Entry.ExchangesDropped:
		return fmt.Errorf("%s: the requests and verdicts were evicted for newer records: save records earlier, or raise --transcripts", what)
	case t.Entry.ExchangesWithheld:
		return fmt.Errorf("%s: the requests contain objects that the client is not allowed to get: read the record as a user who is", what)
	case len(t.Evaluation.Exchanges) == 0:
		return fmt.Errorf("%s: the record does not include requests and verdicts: read it with /debug/gc/records?exchanges=true&uid=%s",
			what, t.Entry.Object.UID)
	case !t.Evaluation.Replayable && t.isPolicy():
		return fmt.Errorf("%s: not replayable, because the contents of a Secret were replaced by hashes, which can't be disabled "+
			"for policies: write a case for gleaner test by hand", what)
	case !t.Evaluation.Replayable:
		return fmt.Errorf("%s: not replayable, because the contents of Secrets and HTTP bodies were replaced by hashes: "+
			"set recordBodies: true in the Finalizer, and save a newer record", what)
	default:
		return nil
	}
}
