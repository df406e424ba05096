package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// compared is a round as it was recorded, and as it is replayed.
type compared struct {
	then, now  policies.Exchange
	sameModule bool
	strayed    bool // an earlier round came out otherwise
}

// changes are the lines in which the answers differ.
func (c compared) changes() []string {
	if !c.then.Repeats() {
		return nil
	}
	then, now := leavesOf(c.then), leavesOf(c.now)
	all := maps.Clone(then)
	maps.Copy(all, now)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if then[name] != now[name] {
			lines = append(lines, fmt.Sprintf("%s: %s then, %s now", name, orNone(then[name]), orNone(now[name])))
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

// differs reports whether the round counts as another. Another module takes other
// fuel as a matter of course.
func (c compared) differs(changes []string) bool {
	return len(changes) != 0 || c.sameModule && c.then.Fuel != c.now.Fuel
}

func (c compared) print(to io.Writer, round int, changes []string) {
	switch {
	case !c.then.Repeats():
		kubectl.Fprintf(to, "round %d: nothing to compare, since it was broken off then: %s; now %s\n", round, c.then.Fault, answerOf(c.now))
		return
	case len(changes) == 0:
		kubectl.Fprintf(to, "round %d: same verdict, %s; ", round, answerOf(c.now))
	default:
		kubectl.Fprintf(to, "round %d: ANOTHER VERDICT; ", round)
	}
	if c.then.Fuel == c.now.Fuel {
		kubectl.Fprintf(to, "same fuel, %d\n", c.now.Fuel)
	} else {
		kubectl.Fprintf(to, "fuel %d then, %d now\n", c.then.Fuel, c.now.Fuel)
	}
	if c.strayed {
		kubectl.Fprintln(to, "  (asked with the state and the results that the recorded answers led to)")
	}
	for _, line := range changes {
		kubectl.Fprintln(to, "  "+line)
	}
	if c.sameModule && len(changes) == 0 && c.differs(changes) {
		kubectl.Fprintf(to, "  a module takes the same for the same request: was the record written anew on its way, or are\n"+
			"  the module's files and their names not all that the cluster has?\n")
	}
}

// answerOf is an answer in a word.
func answerOf(e policies.Exchange) string {
	if e.Fault != "" {
		return "a fault: " + e.Fault
	}
	return string(e.Verdict.Decision)
}

// leavesOf takes an answer apart: each value that has no parts, by where it is.
func leavesOf(e policies.Exchange) map[string]string {
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
	gatherLeaves(leaves, "", document)
	return leaves
}

func gatherLeaves(into map[string]string, at string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			path := name
			if at != "" {
				path = at + "." + name
			}
			gatherLeaves(into, path, field)
		}
		if len(v) == 0 {
			into[at] = "{}"
		}
	case []any:
		for i, item := range v {
			gatherLeaves(into, fmt.Sprintf("%s[%d]", at, i), item)
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
