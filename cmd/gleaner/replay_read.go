package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// recordFlags choose among records.
type recordFlags struct {
	uid, policy string
	index       int
}

func (f *recordFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.uid, "uid", "", "of several records, those of the object with this UID")
	flags.IntVar(&f.index, "index", -1, "of several records, the one at this `place`, from 0")
	flags.StringVar(&f.policy, "policy", "", "of several policies that were asked, the one of this `name`, as in \"ClusterGCPolicy keep\" or just \"keep\"")
}

// readEntries reads records: one, a list of them, or what the endpoint prints.
func readEntries(in io.Reader, file string) ([]record.Entry, error) {
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

var errNoRecord = errors.New("it holds no record: save what /debug/gc/records?exchanges=true prints, or one of its items")

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

// transcript is what a record holds of one policy's module.
type transcript struct {
	index int // of the entry, in its file
	entry record.Entry
	asked record.Asked
}

func (t transcript) String() string {
	return fmt.Sprintf("--index=%d  %s  %s (uid %s), asked by %s", t.index, t.entry.Time.UTC().Format(time.RFC3339),
		t.entry.Object, t.entry.Object.UID, t.asked.Policy)
}

// chosen are the transcripts that the flags choose, also those that can't be
// replayed.
func (f *recordFlags) chosen(entries []record.Entry) ([]transcript, error) {
	if f.index >= len(entries) {
		return nil, fmt.Errorf("--index=%d: there are %s, counted from 0", f.index, counted(len(entries), "record", "records"))
	}
	var found []transcript
	var others []string
	for i, e := range entries {
		if f.index >= 0 && f.index != i || f.uid != "" && f.uid != string(e.Object.UID) {
			continue
		}
		for _, a := range e.Asked {
			switch {
			case a.Module == "":
			case f.policy == "" || f.policy == a.Policy || strings.HasSuffix(a.Policy, " "+f.policy):
				found = append(found, transcript{i, e, a})
			default:
				others = append(others, a.Policy)
			}
		}
	}
	switch {
	case len(found) != 0:
		return found, nil
	case len(others) != 0:
		return nil, fmt.Errorf("--policy=%s: no policy of this name was asked: use --policy=%q, or leave it out", f.policy, others[0])
	default:
		return nil, fmt.Errorf("none of these %s is about a question to a module: without one, policies have fixed verdicts",
			counted(len(entries), "record", "records"))
	}
}

// one is the transcript that the flags choose. There must be no other.
func (f *recordFlags) one(entries []record.Entry) (transcript, error) {
	found, err := f.chosen(entries)
	if err != nil {
		return transcript{}, err
	}
	if len(found) == 1 {
		return found[0], found[0].lacks()
	}
	var lines strings.Builder
	single := true // entry
	for _, t := range found {
		kubectl.Fprintf(&lines, "\n  %s", t)
		single = single && t.index == found[0].index
	}
	if single {
		return transcript{}, fmt.Errorf("several policies asked their modules: choose one with --policy%s", &lines)
	}
	return transcript{}, fmt.Errorf("there are several records of modules: choose one with --index, --uid or --policy%s", &lines)
}

// every is each transcript that the flags choose and that can be replayed. It says
// which can't be.
func (f *recordFlags) every(entries []record.Entry, left io.Writer) ([]transcript, error) {
	found, err := f.chosen(entries)
	if err != nil {
		return nil, err
	}
	var whole []transcript
	for _, t := range found {
		if lacks := t.lacks(); lacks != nil {
			kubectl.Fprintf(left, "left out: %v\n", lacks)
			continue
		}
		whole = append(whole, t)
	}
	if len(whole) == 0 {
		return nil, errors.New("none of the records can be replayed")
	}
	return whole, nil
}

// byPolicy reports whether a policy has asked, and not a finalizer.
func (t transcript) byPolicy() bool {
	kind, _, _ := strings.Cut(t.asked.Policy, " ")
	return kind == "GCPolicy" || kind == "ClusterGCPolicy"
}

// lacks says why there is nothing to replay, and what to do; nil if there is.
func (t transcript) lacks() error {
	what := fmt.Sprintf("%s, asked by %s", t.entry.Object, t.asked.Policy)
	switch {
	case t.asked.Rounds == 0:
		return fmt.Errorf("%s: its module was not asked, since the policy was at fault before: %s", what, t.asked.Fault)
	case t.entry.ExchangesDropped:
		return fmt.Errorf("%s: what was asked and answered had to make room for newer records: save records sooner", what)
	case t.entry.ExchangesHidden:
		return fmt.Errorf("%s: what was asked names objects that the client may not get: ask for the record as somebody who may", what)
	case len(t.asked.Exchanges) == 0:
		return fmt.Errorf("%s: what was asked and answered is not in the record: ask for it with /debug/gc/records?exchanges=true&uid=%s",
			what, t.entry.Object.UID)
	case !t.asked.Replayable && t.byPolicy():
		return fmt.Errorf("%s: it is not replayable: the contents of a Secret were replaced by hashes, which for policies can't be "+
			"turned off: write a case for gleaner test by hand", what)
	case !t.asked.Replayable:
		return fmt.Errorf("%s: it is not replayable: the contents of Secrets and of HTTP were replaced by hashes: "+
			"set recordBodies: true in the Finalizer, and save a newer record", what)
	default:
		return nil
	}
}
