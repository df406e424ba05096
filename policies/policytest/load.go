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

// document is a file of cases, in YAML or JSON. Its requests are merge patches: of
// a case on the request of the file, and of that on defaults.
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

// requestDefaults are the defaults of all requests.
const requestDefaults = `{
	"apiVersion": "` + hostabi.Version + `",
	"policy": {"name": "policy"},
	"time": "2026-01-02T12:00:00Z",
	"attempt": 1, "round": 1, "idempotencyKey": "key"
}`

// hookDefaults are the additional defaults by hook: an object that has just lost its only
// owner, that is being deleted, that a user wants to delete, or that is too old.
var hookDefaults = map[hostabi.Hook]string{
	hostabi.HookCollect: `{
		"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "object", "namespace": "shop", "uid": "uid", "resourceVersion": "7"}},
		"owners": [{"reference": {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "owner-uid"}, "status": "Absent"}],
		"ownersAbsentSince": "2026-01-02T12:00:00Z", "requestedPropagation": "Unspecified"
	}`,
	hostabi.HookPropagate: terminating,
	hostabi.HookFinalize:  terminating,
	hostabi.HookProtect: `{
		"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "object", "namespace": "shop", "uid": "uid", "resourceVersion": "7"}},
		"requestedPropagation": "Unspecified", "userInfo": {"username": "user", "groups": ["system:authenticated"]}
	}`,
	hostabi.HookRetain: `{
		"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "object", "namespace": "shop", "uid": "uid", "resourceVersion": "7"}},
		"retention": {"policy": "retention", "namespace": "shop", "limit": "MaxAge"}
	}`,
}

const terminating = `{
	"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
		"name": "object", "namespace": "shop", "uid": "uid", "resourceVersion": "7", "deletionTimestamp": "2026-01-02T12:00:00Z"}},
	"requestedPropagation": "Unspecified"
}`

// Load reads a file of cases. Unknown, duplicate or missing fields are errors,
// since a misspelled case would otherwise test something else.
func Load(file string) ([]Case, error) {
	suite, err := LoadSuite(file)
	return suite.Cases, err
}

// LoadSuite reads a file as Load does, including its modules.
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

// Parse parses cases as Load does.
func Parse(data []byte) ([]Case, error) {
	suite, err := parse(data)
	return suite.Cases, err
}

func parse(data []byte) (Suite, error) {
	var doc document
	if err := yaml.UnmarshalStrict(data, &doc); err != nil {
		return Suite{}, fmt.Errorf("parse: %w", err)
	}
	if len(doc.Cases) == 0 {
		return Suite{}, errors.New("there are no cases: add them to cases")
	}
	modules, err := doc.modules()
	if err != nil {
		return Suite{}, err
	}
	suite := Suite{Modules: modules}
	for i, c := range doc.Cases {
		if c.Name == "" {
			return Suite{}, fmt.Errorf("case %d has no name: set its name", i+1)
		}
		if slices.ContainsFunc(suite.Cases, func(other Case) bool { return other.Name == c.Name }) {
			return Suite{}, fmt.Errorf("case %q is duplicated: write a unique name", c.Name)
		}
		parsed := Case{Name: c.Name, Line: lineOf(data, c.Name)}
		var err error
		if parsed.Request, err = request(doc.Request, c.Request); err != nil {
			return Suite{}, fmt.Errorf("case %q: request: %w", c.Name, err)
		}
		if err := parsed.parseWant(c.Want, c.WantFault); err != nil {
			return Suite{}, fmt.Errorf("case %q: %w", c.Name, err)
		}
		suite.Cases = append(suite.Cases, parsed)
	}
	return suite, nil
}

// modules returns the names of the modules: one, several or none.
func (d document) modules() ([]string, error) {
	if len(d.Module) == 0 {
		return nil, nil
	}
	var names []string
	if err := json.Unmarshal(d.Module, &names); err != nil {
		names = []string{""}
		if json.Unmarshal(d.Module, &names[0]) != nil {
			return nil, errors.New("module is not a string: write a file or a folder, such as policy.rego, or a list of them")
		}
	}
	if len(names) == 0 || slices.Contains(names, "") {
		return nil, errors.New("module is empty: write a file or a folder, such as policy.rego, or remove it")
	}
	return names, nil
}

// lineOf returns the line of a case's name, or 0 if it is not found. It is the
// first line after cases that reads as the name, or else the first that contains
// it.
func lineOf(data []byte, name string) int {
	fallback, started := 0, false
	for i, line := range strings.Split(string(data), "\n") {
		if !started {
			started = casesKey.MatchString(line)
		}
		if !started {
			continue
		}
		if found := caseName.FindStringSubmatch(line); found != nil && scalar(found[1]) == name {
			return i + 1
		}
		if fallback == 0 && strings.Contains(line, "name") && strings.Contains(line, name) {
			fallback = i + 1
		}
	}
	return fallback
}

var (
	casesKey = regexp.MustCompile(`^[\s{]*"?cases"?\s*:`)
	caseName = regexp.MustCompile(`^[\s\-]*name:\s*(.*)$`)
)

// scalar parses a YAML string on one line. It returns "" if it is not one.
func scalar(text string) (s string) {
	if yaml.Unmarshal([]byte(text), &s) != nil {
		return ""
	}
	return s
}

// parseWant parses the expected verdict or fault.
func (c *Case) parseWant(want json.RawMessage, fault *string) error {
	switch {
	case (len(want) == 0) == (fault == nil):
		return errors.New("write either want, with a verdict, or wantFault, with part of the fault's message")
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

// request merges the requests of a file and of a case into the defaults.
func request(file, caseRequest json.RawMessage) (hostabi.Request, error) {
	header, err := merge(file, caseRequest)
	if err != nil {
		return hostabi.Request{}, err
	}
	var hookOnly struct {
		Hook hostabi.Hook `json:"hook"`
	}
	if err := json.Unmarshal(header, &hookOnly); err != nil {
		return hostabi.Request{}, fmt.Errorf("decode hook: %w", err)
	}
	if !slices.Contains(hostabi.Hooks(), hookOnly.Hook) {
		return hostabi.Request{}, fmt.Errorf("hook is %q: write one of %v", hookOnly.Hook, hostabi.Hooks())
	}
	// Merge all layers again, since a null also removes a default.
	merged, err := merge(json.RawMessage(requestDefaults), json.RawMessage(hookDefaults[hookOnly.Hook]), file, caseRequest)
	if err != nil {
		return hostabi.Request{}, err
	}
	return decodeRequest(merged)
}

// merge applies documents in order, as merge patches. Empty ones are skipped.
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
			return nil, fmt.Errorf("parse: %w", err)
		}
		merged = applyMergePatch(merged, patch)
	}
	return json.Marshal(merged)
}

// applyMergePatch applies a merge patch: objects are merged, null removes a field, and any
// other value replaces the old one.
func applyMergePatch(value, patch any) any {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	merged, ok := value.(map[string]any)
	if !ok {
		merged = map[string]any{}
	}
	for name, field := range fields {
		if field == nil {
			delete(merged, name)
			continue
		}
		merged[name] = applyMergePatch(merged[name], field)
	}
	return merged
}

func decodeRequest(whole []byte) (hostabi.Request, error) {
	d := json.NewDecoder(bytes.NewReader(whole))
	d.DisallowUnknownFields()
	var r hostabi.Request
	if err := d.Decode(&r); err != nil {
		return hostabi.Request{}, err
	}
	if r.APIVersion != hostabi.Version {
		return hostabi.Request{}, fmt.Errorf("apiVersion is %q: remove it, or write %s", r.APIVersion, hostabi.Version)
	}
	for i, owner := range r.Owners {
		if !slices.Contains(ownerStatuses, owner.Status) {
			return hostabi.Request{}, fmt.Errorf("owners[%d].status is %q: write one of %v", i, owner.Status, ownerStatuses)
		}
	}
	if !slices.Contains(requestedValues, r.RequestedPropagation) {
		return hostabi.Request{}, fmt.Errorf("requestedPropagation is %q: write one of %v", r.RequestedPropagation, requestedValues[1:])
	}
	return r, nil
}

var (
	ownerStatuses = []hostabi.OwnerStatus{
		hostabi.OwnerUnknown, hostabi.OwnerPresent, hostabi.OwnerAbsent, hostabi.OwnerWaiting,
		hostabi.OwnerOrphaning, hostabi.OwnerUnresolvable,
	}
	requestedValues = []hostabi.RequestedPropagation{"", hostabi.RequestedUnspecified, hostabi.RequestedForeground, hostabi.RequestedOrphan}
)
