package intents_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/writelimit"
	"github.com/gleaner-dev/gleaner/policies"
)

func TestCheck(t *testing.T) {
	http := func(change func(*policies.HTTPRule)) policies.Grants {
		h := policies.HTTPRule{URL: "https://s3.example.com/backups/*", Methods: []string{"GET", "DELETE"}}
		change(&h)
		return policies.Grants{HTTP: []policies.HTTPRule{{URL: "http://other.example.com"}, h}}
	}
	write := func(group, resource string, verb policies.Verb) policies.Grants {
		rule := policies.Rule{Groups: []string{group}, Resources: []string{resource}}
		return policies.Grants{Write: []policies.WriteRule{{ReadRule: policies.ReadRule{Rule: rule}, Verbs: []policies.Verb{verb}}}}
	}
	prefix := func(s string) policies.Grants {
		return http(func(h *policies.HTTPRule) { h.Addresses = []netip.Prefix{netip.MustParsePrefix(s)} })
	}
	url := func(s string) policies.Grants { return http(func(h *policies.HTTPRule) { h.URL = s }) }
	header := func(names ...string) policies.Grants {
		return http(func(h *policies.HTTPRule) {
			h.BasicAuth, h.Headers = &policies.BasicAuth{}, map[string]policies.SecretKey{}
			for _, name := range names {
				h.Headers[name] = policies.SecretKey{}
			}
		})
	}
	for claim, c := range map[string]struct {
		grants policies.Grants
		want   string // empty: nothing is wrong
	}{
		"no grants are valid":                 {policies.Grants{}, ""},
		"a typical grant is valid":            {http(func(*policies.HTTPRule) {}), ""},
		"a non-ASCII host name is valid":      {url("https://bücher.example/*"), ""},
		"a private network is valid":          {prefix("10.0.0.0/8"), ""},
		"all networks are valid":              {prefix("0.0.0.0/0"), ""},
		"a header next to basicAuth is valid": {header("X-Token"), ""},
		"a write grant by name is valid":      {write("apps", "deployments", "patch"), ""},
		"no host":                             {url("https:///a"), "http[1]: url: it is not absolute: write https://"},
		"an invalid port":                     {url("https://s3.example.com:99999/*"), "write one from 1 to 65535"},
		"an address in an unusual notation":   {url("https://127.1/*"), "write four decimal numbers"},
		"a path with parent segments":         {url("https://s3.example.com/a/../*"), "write the resolved path"},
		"a query":                             {url("https://s3.example.com/?a"), "remove the query"},
		"an escaped path":                     {url("https://s3.example.com/%61"), "write the path unescaped"},
		"a star within a segment":             {url("https://s3.example.com/a*"), "only allowed at the end"},
		"a star in the host":                  {url("https://*.example.com/*"), "only allowed at the end"},
		"a password":                          {url("https://me:hunter2@s3.example.com/*"), "remove them"},
		"an unknown method":                   {http(func(h *policies.HTTPRule) { h.Methods = []string{"get"} }), `methods: unknown method "get": write GET,`},
		"ca with http": {http(func(h *policies.HTTPRule) { h.URL, h.CA = "http://a.example/*", &policies.CASource{} }),
			"remove ca"},
		"basicAuth and sigV4":        {http(func(h *policies.HTTPRule) { h.BasicAuth, h.SigV4 = &policies.BasicAuth{}, &policies.SigV4{} }), "mutually exclusive"},
		"no region":                  {http(func(h *policies.HTTPRule) { h.SigV4 = &policies.SigV4{} }), "us-east-1"},
		"the header of basicAuth":    {header("authorization"), "remove it"},
		"a header twice":             {header("X-Token", "x-token"), "is a duplicate"},
		"a transport header":         {header("Host"), "set by the HTTP client"},
		"an invalid header name":     {header("X Token"), "write letters"},
		"the metadata address":       {prefix("169.254.169.254/32"), "never reached: remove it"},
		"the metadata network":       {prefix("169.254.0.0/16"), "never reached"},
		"a private metadata address": {prefix("fd00:ec2::254/128"), "never reached"},
		"an invalid network": {http(func(h *policies.HTTPRule) { h.Addresses = []netip.Prefix{{}} }),
			"write an address and a prefix length"},
		"a write of policies":                 {write("gleaner.dev", "gcpolicies", "patch"), "write[0]: apiGroups: modules must not write objects of group gleaner.dev"},
		"a write of all groups":               {write("*", "pods", "patch"), "by name"},
		"a write of all resources of a group": {write("apps", "*", "patch"), "by name"},
		"a subresource":                       {write("", "pods/exec", "create"), "pods/exec is a subresource"},
		"an unknown verb":                     {write("", "pods", "update"), "write create, delete or patch"},
	} {
		t.Run(claim, func(t *testing.T) {
			err := intents.Check(c.grants)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want an error with %q", err, c.want)
			case err != nil && strings.Contains(err.Error(), "hunter2"):
				t.Errorf("the password is in %v", err)
			}
		})
	}
}

func TestEvent_NamesTheFinalizer(t *testing.T) {
	type event struct {
		about                 corev1.ObjectReference
		kind, reason, message string
	}
	var events []event
	e := intents.New(intents.Options{RecordEvent: func(about *corev1.ObjectReference, kind, reason, message string) {
		events = append(events, event{*about, kind, reason, message})
	}})
	intent := hostabi.Intent{ID: "a", Event: &hostabi.EventIntent{Type: "Warning", Reason: "BucketNotEmpty", Message: "3 objects " + strings.Repeat("é", 1000)}}
	about := corev1.ObjectReference{Kind: "ConfigMap", Name: "told", UID: "1"}
	identity := intents.Identity{Name: "Finalizer ns/bucket", InvolvedObject: &about}
	if r := e.Do(t.Context(), identity, intent); r.Error != nil {
		t.Fatal(describe(r))
	}
	if len(events) != 1 || events[0].about != about || events[0].kind != "Warning" || events[0].reason != "BucketNotEmpty" ||
		!strings.HasPrefix(events[0].message, "Finalizer ns/bucket: 3 objects é") || len(events[0].message) > hostabi.MaxReasonBytes {
		t.Errorf("events: %+v", events)
	}
	identity.ReadOnly = true
	wantError(t, e.Do(t.Context(), identity, intent), hostabi.ErrorNotGranted, "Monitor")
	identity.ReadOnly, identity.InvolvedObject = false, nil
	wantError(t, e.Do(t.Context(), identity, intent), hostabi.ErrorInvalid)
	wantError(t, e.Do(t.Context(), identity, hostabi.Intent{ID: "none"}), hostabi.ErrorInvalid)
	if len(events) != 1 {
		t.Errorf("%d events", len(events))
	}
}

func TestEvents_AreRateLimited(t *testing.T) {
	now, raised, limited := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 0, 0
	e := intents.New(intents.Options{
		RecordEvent: func(*corev1.ObjectReference, string, string, string) { raised++ }, Now: func() time.Time { return now },
		EventLimiter: writelimit.New(writelimit.Rate{PerSecond: 1, Burst: 10}, writelimit.Rate{PerSecond: 1, Burst: 10}),
		EventLimited: func(name string) { limited++ },
	})
	identity := intents.Identity{Name: "Finalizer ns/flood", InvolvedObject: &corev1.ObjectReference{Kind: "ConfigMap", Namespace: "ns", Name: "told", UID: "1"}}
	intent := hostabi.Intent{ID: "a", Event: &hostabi.EventIntent{Type: "Normal", Reason: "Flood", Message: "again"}}
	for range 6000 { // in a minute
		if r := e.Do(t.Context(), identity, intent); r.Error != nil && r.Error.Reason != hostabi.ErrorUnavailable {
			t.Fatal(describe(r))
		}
		now = now.Add(10 * time.Millisecond)
	}
	if raised < 60 || raised > 70 || limited != 6000-raised {
		t.Errorf("%d events were raised and %d were not; want one a second, and 10 at first", raised, limited)
	}
}
