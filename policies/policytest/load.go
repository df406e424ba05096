package policytest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// document is a file of cases, in YAML or JSON. The requests in it are merge
// patches: of a case on what is common to the file, and of that on defaults.
type document struct {
	Module  json.RawMessage `json:"module"`
	Request json.RawMessage `json:"request"`
	Cases   []struct {
		Name      string          `json:"name"`
		Request   json.RawMessage `json:"request"`
		Want      json.RawMessage `json:"want"`
		WantFault *string         `json:"wantFault"`
	} `json:"cases"`
}

// common is what a request has that nobody has said anything else about.
const common = `{
	"apiVersion": "` + hostabi.Version + `",
	"policy": {"name": "policy"},
	"time": "2026-01-02T12:00:00Z",
	"attempt": 1, "round": 1, "idempotencyKey": "key"
}`

// about is what the requests of hooks that are about an object have beyond that:
// one that has just lost its only owner, or is being deleted.
var about = map[hostabi.Hook]string{
	hostabi.HookCollect: `{
		"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "object", "namespace": "shop", "uid": "uid", "resourceVersion": "7"}},
		"owners": [{"reference": {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "owner-uid"}, "standing": "Absent"}],
		"ownerlessSince": "2026-01-02T12:00:00Z", "requested": "Unspecified"
	}`,
	hostabi.HookPropagate: terminating,
	hostabi.HookFinalize:  terminating,
}

const terminating = `{
	"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
		"name": "object", "namespace": "shop", "uid": "uid", "resourceVersion": "7", "deletionTimestamp": "2026-01-02T12:00:00Z"}},
	"requested": "Unspecified"
}`

// Load reads a file of cases. Whatever in it is unknown, repeated or missing is
// an error, since a misspelt case would otherwise ask something else.
func Load(file string) ([]Case, error) {
	suite, err := LoadSuite(file)
	return suite.Cases, err
}

// LoadSuite reads a file as Load does, with the modules that it names.
func LoadSuite(file string) (Suite, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Suite{}, fmt.Errorf("load cases: %w", err)
	}
	suite, err := parse(data)
	if err != nil {
		return Suite{}, fmt.Errorf("load cases from %s: %w", file, err)
	}
	return suite, nil
}

// Parse reads cases as Load does.
func Parse(data []byte) ([]Case, error) {
	suite, err := parse(data)
	return suite.Cases, err
}

func parse(data []byte) (Suite, error) {
	var doc document
	if err := yaml.UnmarshalStrict(data, &doc); err != nil {
		return Suite{}, fmt.Errorf("read: %w", err)
	}
	if len(doc.Cases) == 0 {
		return Suite{}, errors.New("there are no cases: write some below cases")
	}
	modules, err := doc.modules()
	if err != nil {
		return Suite{}, err
	}
	suite := Suite{Modules: modules}
	for i, c := range doc.Cases {
		if c.Name == "" {
			return Suite{}, fmt.Errorf("case %d has no name: write what it claims", i+1)
		}
		if slices.ContainsFunc(suite.Cases, func(other Case) bool { return other.Name == c.Name }) {
			return Suite{}, fmt.Errorf("case %q is there twice: give each a name of its own", c.Name)
		}
		read := Case{Name: c.Name, Line: lineOf(data, c.Name)}
		var err error
		if read.Request, err = request(doc.Request, c.Request); err != nil {
			return Suite{}, fmt.Errorf("case %q: request: %w", c.Name, err)
		}
		if err := read.wish(c.Want, c.WantFault); err != nil {
			return Suite{}, fmt.Errorf("case %q: %w", c.Name, err)
		}
		suite.Cases = append(suite.Cases, read)
	}
	return suite, nil
}

// modules reads the names of the modules: one, several or none.
func (d document) modules() ([]string, error) {
	if len(d.Module) == 0 {
		return nil, nil
	}
	var names []string
	if err := json.Unmarshal(d.Module, &names); err != nil {
		names = []string{""}
		if json.Unmarshal(d.Module, &names[0]) != nil {
			return nil, errors.New("module is no text: write a file or a folder, such as policy.rego, or a list of them")
		}
	}
	if len(names) == 0 || slices.Contains(names, "") {
		return nil, errors.New("module is empty: write a file or a folder, such as policy.rego, or leave it out")
	}
	return names, nil
}

// lineOf finds the line that a case's name is in; 0 if it is written in a way
// that is not seen through. The first line after cases that reads as the name
// counts, and else the first that holds it.
func lineOf(data []byte, name string) int {
	held, begun := 0, false
	for i, line := range strings.Split(string(data), "\n") {
		if !begun {
			begun = startsCases.MatchString(line)
		}
		if !begun {
			continue
		}
		if found := namesCase.FindStringSubmatch(line); found != nil && scalar(found[1]) == name {
			return i + 1
		}
		if held == 0 && strings.Contains(line, "name") && strings.Contains(line, name) {
			held = i + 1
		}
	}
	return held
}

var (
	startsCases = regexp.MustCompile(`^[\s{]*"?cases"?\s*:`)
	namesCase   = regexp.MustCompile(`^[\s\-]*name:\s*(.*)$`)
)

// scalar reads a text as YAML has it in a line of its own; "" if it is none.
func scalar(text string) (s string) {
	if yaml.Unmarshal([]byte(text), &s) != nil {
		return ""
	}
	return s
}

// wish reads what is wanted.
func (c *Case) wish(want json.RawMessage, fault *string) error {
	switch {
	case (len(want) == 0) == (fault == nil):
		return errors.New("write either want, with a verdict, or wantFault, with part of a message")
	case fault != nil && *fault == "":
		return errors.New("wantFault is empty: write part of the message")
	case fault != nil:
		c.WantFault = *fault
		return nil
	}
	var err error
	if c.Want, err = hostabi.ParseVerdict(c.Request.Hook, want); err != nil {
		return fmt.Errorf("want: %w", err)
	}
	return nil
}

// request merges what a file and a case say into the defaults.
func request(file, own json.RawMessage) (hostabi.Request, error) {
	said, err := merge(file, own)
	if err != nil {
		return hostabi.Request{}, err
	}
	var start struct {
		Hook hostabi.Hook `json:"hook"`
	}
	if err := json.Unmarshal(said, &start); err != nil {
		return hostabi.Request{}, fmt.Errorf("read the hook: %w", err)
	}
	if !slices.Contains(hostabi.Hooks(), start.Hook) {
		return hostabi.Request{}, fmt.Errorf("hook is %q: write one of %v", start.Hook, hostabi.Hooks())
	}
	// One upon the other again, since a null takes out what is in the defaults, too.
	whole, err := merge(json.RawMessage(common), json.RawMessage(about[start.Hook]), file, own)
	if err != nil {
		return hostabi.Request{}, err
	}
	return read(whole)
}

// merge puts documents one upon the other, as merge patches do. Missing ones
// change nothing.
func merge(documents ...json.RawMessage) (json.RawMessage, error) {
	var merged any = map[string]any{}
	for _, document := range documents {
		if len(document) == 0 {
			continue
		}
		var patch any
		d := json.NewDecoder(bytes.NewReader(document))
		d.UseNumber()
		if err := d.Decode(&patch); err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		merged = patched(merged, patch)
	}
	return json.Marshal(merged)
}

// patched applies a merge patch: objects are merged, null takes a field out, and
// anything else takes the place of what was there.
func patched(value, patch any) any {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	was, ok := value.(map[string]any)
	if !ok {
		was = map[string]any{}
	}
	for name, field := range fields {
		if field == nil {
			delete(was, name)
			continue
		}
		was[name] = patched(was[name], field)
	}
	return was
}

func read(whole []byte) (hostabi.Request, error) {
	d := json.NewDecoder(bytes.NewReader(whole))
	d.DisallowUnknownFields()
	var r hostabi.Request
	if err := d.Decode(&r); err != nil {
		return hostabi.Request{}, err
	}
	if r.APIVersion != hostabi.Version {
		return hostabi.Request{}, fmt.Errorf("apiVersion is %q: leave it out, or write %s", r.APIVersion, hostabi.Version)
	}
	for i, owner := range r.Owners {
		if !slices.Contains(standings, owner.Standing) {
			return hostabi.Request{}, fmt.Errorf("owners[%d].standing is %q: write one of %v", i, owner.Standing, standings)
		}
	}
	if !slices.Contains(wishes, r.Requested) {
		return hostabi.Request{}, fmt.Errorf("requested is %q: write one of %v", r.Requested, wishes[1:])
	}
	return r, nil
}

var (
	standings = []hostabi.Standing{
		hostabi.StandingUnknown, hostabi.StandingPresent, hostabi.StandingAbsent, hostabi.StandingWaiting,
		hostabi.StandingOrphaning, hostabi.StandingUnresolvable,
	}
	wishes = []hostabi.Requested{"", hostabi.RequestedUnspecified, hostabi.RequestedForeground, hostabi.RequestedOrphan}
)
