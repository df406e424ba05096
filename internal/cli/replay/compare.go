package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/policies"
)

// comparison is a recorded round and its replay.
type comparison struct {
	recorded, replayed policies.Exchange
	sameModule         bool
	diverged           bool // an earlier round is different
}

// differences returns the differences of the verdicts, one per line.
func (c comparison) differences() []string {
	if !c.recorded.Replayable() {
		return nil
	}
	then, now := flatten(c.recorded), flatten(c.replayed)
	all := maps.Clone(then)
	maps.Copy(all, now)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if then[name] != now[name] {
			lines = append(lines, fmt.Sprintf("%s: recorded %s, now %s", name, orNone(then[name]), orNone(now[name])))
		}
	}
	return lines
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// differs reports whether the round counts as different. Fuel counts only for the same module.
func (c comparison) differs(changes []string) bool {
	return len(changes) != 0 || c.sameModule && c.recorded.Fuel != c.replayed.Fuel
}

func (c comparison) print(to io.Writer, round int, changes []string) {
	switch {
	case !c.recorded.Replayable():
		printer.Fprintf(to, "round %d: not comparable, because the recorded evaluation was aborted: %s; now %s\n", round, c.recorded.Fault, describeOutcome(c.replayed))
		return
	case len(changes) == 0:
		printer.Fprintf(to, "round %d: same verdict, %s; ", round, describeOutcome(c.replayed))
	default:
		printer.Fprintf(to, "round %d: DIFFERENT VERDICT; ", round)
	}
	if c.recorded.Fuel == c.replayed.Fuel {
		printer.Fprintf(to, "same fuel, %d\n", c.replayed.Fuel)
	} else {
		printer.Fprintf(to, "fuel: recorded %d, now %d\n", c.recorded.Fuel, c.replayed.Fuel)
	}
	if c.diverged {
		printer.Fprintln(to, "  (evaluated with the state and results of the recorded verdicts)")
	}
	for _, line := range changes {
		printer.Fprintln(to, "  "+line)
	}
	if c.sameModule && len(changes) == 0 && c.differs(changes) {
		printer.Fprintf(to, "  the same module should use the same fuel: check that the record was not reformatted, and that the\n"+
			"  files and their names are the same as in the cluster\n")
	}
}

// describeOutcome returns the decision or the fault of a round.
func describeOutcome(e policies.Exchange) string {
	if e.Fault != "" {
		return "a fault: " + e.Fault
	}
	return string(e.Verdict.Decision)
}

// flatten returns the scalar values of a verdict by path.
func flatten(e policies.Exchange) map[string]string {
	leaves := map[string]string{}
	if e.Fault != "" {
		leaves["fault"] = fmt.Sprintf("%q", e.Fault)
		return leaves
	}
	var document any
	data, err := hostabi.MarshalVerdict(e.Verdict)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		err = d.Decode(&document)
	}
	if err != nil {
		leaves["verdict"] = fmt.Sprintf("%+v (%v)", e.Verdict, err)
		return leaves
	}
	flattenInto(leaves, "", document)
	return leaves
}

func flattenInto(into map[string]string, at string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			path := name
			if at != "" {
				path = at + "." + name
			}
			flattenInto(into, path, field)
		}
		if len(v) == 0 {
			into[at] = "{}"
		}
	case []any:
		for i, item := range v {
			flattenInto(into, fmt.Sprintf("%s[%d]", at, i), item)
		}
		if len(v) == 0 {
			into[at] = "[]"
		}
	case string:
		into[at] = fmt.Sprintf("%q", v)
	default:
		into[at] = fmt.Sprint(v)
	}
}
