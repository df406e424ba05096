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
	http := func(change func(*policies.HTTP)) policies.Grants {
		h := policies.HTTP{URL: "https://s3.example.com/backups/*", Methods: []string{"GET", "DELETE"}}
		change(&h)
		return policies.Grants{HTTP: []policies.HTTP{{URL: "http://other.example.com"}, h}}
	}
	write := func(group, resource string, verb policies.Verb) policies.Grants {
		rule := policies.Rule{Groups: []string{group}, Resources: []string{resource}}
		return policies.Grants{Write: []policies.Writes{{Reads: policies.Reads{Rule: rule}, Verbs: []policies.Verb{verb}}}}
	}
	prefix := func(s string) policies.Grants {
		return http(func(h *policies.HTTP) { h.Addresses = []netip.Prefix{netip.MustParsePrefix(s)} })
	}
	url := func(s string) policies.Grants { return http(func(h *policies.HTTP) { h.URL = s }) }
	header := func(names ...string) policies.Grants {
		return http(func(h *policies.HTTP) {
			h.Basic, h.Headers = &policies.Basic{}, map[string]policies.SecretKey{}
			for _, name := range names {
				h.Headers[name] = policies.SecretKey{}
			}
		})
	}
	for claim, c := range map[string]struct {
		grants policies.Grants
		says   string // empty: nothing is wrong
	}{
		"nothing granted is fine":           {policies.Grants{}, ""},
		"a common grant is fine":            {http(func(*policies.HTTP) {}), ""},
		"a name beyond ASCII is fine":       {url("https://bücher.example/*"), ""},
		"a private network is fine":         {prefix("10.0.0.0/8"), ""},
		"so is all there is":                {prefix("0.0.0.0/0"), ""},
		"so is a header beside basicAuth":   {header("X-Token"), ""},
		"a write of what it names is fine":  {write("apps", "deployments", "patch"), ""},
		"no host":                           {url("https:///a"), "http[1]: url: it is not absolute: write https://"},
		"a port that is none":               {url("https://s3.example.com:99999/*"), "write one from 1 to 65535"},
		"an address in an unusual spelling": {url("https://127.1/*"), "write four numbers"},
		"a path that leads upwards":         {url("https://s3.example.com/a/../*"), "write the path that is meant"},
		"a query":                           {url("https://s3.example.com/?a"), "leave the query out"},
		"a path by %":                       {url("https://s3.example.com/%61"), "write the path as it is meant"},
		"a star that means nothing":         {url("https://s3.example.com/a*"), "write it at the end"},
		"a star in the host":                {url("https://*.example.com/*"), "write it at the end"},
		"a password":                        {url("https://me:hunter2@s3.example.com/*"), "leave them out"},
		"a method that is none":             {http(func(h *policies.HTTP) { h.Methods = []string{"get"} }), `methods: there is no "get": write GET,`},
		"ca with http": {http(func(h *policies.HTTP) { h.URL, h.CA = "http://a.example/*", &policies.Certificates{} }),
			"leave ca out"},
		"two ways to authorize":       {http(func(h *policies.HTTP) { h.Basic, h.SigV4 = &policies.Basic{}, &policies.SigV4{} }), "at most one"},
		"no region":                   {http(func(h *policies.HTTP) { h.SigV4 = &policies.SigV4{} }), "us-east-1"},
		"the header of basicAuth":     {header("authorization"), "leave it out"},
		"a header twice":              {header("X-Token", "x-token"), "in another spelling"},
		"a header of the connection":  {header("Host"), "belongs to the connection"},
		"a header that is none":       {header("X Token"), "write letters"},
		"the addresses of metadata":   {prefix("169.254.169.254/32"), "never reached: leave it out"},
		"its whole network":           {prefix("169.254.0.0/16"), "never reached"},
		"metadata that looks private": {prefix("fd00:ec2::254/128"), "never reached"},
		"a network that is none": {http(func(h *policies.HTTP) { h.Addresses = []netip.Prefix{{}} }),
			"write an address and its length"},
		"a write of policies":    {write("gleaner.dev", "gcpolicies", "patch"), "write[0]: apiGroups: objects of the group gleaner.dev"},
		"a write of all":         {write("*", "pods", "patch"), "by name"},
		"a write of all of some": {write("apps", "*", "patch"), "by name"},
		"a subresource":          {write("", "pods/exec", "create"), "pods/exec is a subresource"},
		"a verb that is none":    {write("", "pods", "update"), "write create, delete or patch"},
	} {
		t.Run(claim, func(t *testing.T) {
			err := intents.Check(c.grants)
			switch {
			case c.says == "" && err != nil:
				t.Errorf("got %v", err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("got %v, want an error with %q", err, c.says)
			case err != nil && strings.Contains(err.Error(), "hunter2"):
				t.Errorf("the password is in %v", err)
			}
		})
	}
}

func TestEventsAreAboutTheObjectAndSayWhoTellsThem(t *testing.T) {
	type event struct {
		about                 corev1.ObjectReference
		kind, reason, message string
	}
	var told []event
	e := intents.New(intents.Options{Tell: func(about *corev1.ObjectReference, kind, reason, message string) {
		told = append(told, event{*about, kind, reason, message})
	}})
	intent := hostabi.Intent{ID: "a", Event: &hostabi.EventIntent{Type: "Warning", Reason: "BucketNotEmpty", Message: "3 objects " + strings.Repeat("é", 1000)}}
	about := corev1.ObjectReference{Kind: "ConfigMap", Name: "told", UID: "1"}
	on := intents.Behalf{Name: "Finalizer ns/bucket", About: &about}
	if r := e.Do(t.Context(), on, intent); r.Error != nil {
		t.Fatal(show(r))
	}
	if len(told) != 1 || told[0].about != about || told[0].kind != "Warning" || told[0].reason != "BucketNotEmpty" ||
		!strings.HasPrefix(told[0].message, "Finalizer ns/bucket: 3 objects é") || len(told[0].message) > hostabi.MaxReasonBytes {
		t.Errorf("told %+v", told)
	}
	on.ReadOnly = true
	fails(t, e.Do(t.Context(), on, intent), hostabi.ErrorNotGranted, "Monitor")
	on.ReadOnly, on.About = false, nil
	fails(t, e.Do(t.Context(), on, intent), hostabi.ErrorInvalid)
	fails(t, e.Do(t.Context(), on, hostabi.Intent{ID: "none"}), hostabi.ErrorInvalid)
	if len(told) != 1 {
		t.Errorf("told %d events", len(told))
	}
}

func TestEvents_AreRaisedAtABoundedRate(t *testing.T) {
	now, raised, limited := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 0, 0
	e := intents.New(intents.Options{
		Tell: func(*corev1.ObjectReference, string, string, string) { raised++ }, Now: func() time.Time { return now },
		Events:  writelimit.New(writelimit.Rate{PerSecond: 1, Burst: 10}, writelimit.Rate{PerSecond: 1, Burst: 10}),
		Limited: func(by string) { limited++ },
	})
	on := intents.Behalf{Name: "Finalizer ns/flood", About: &corev1.ObjectReference{Kind: "ConfigMap", Namespace: "ns", Name: "told", UID: "1"}}
	intent := hostabi.Intent{ID: "a", Event: &hostabi.EventIntent{Type: "Normal", Reason: "Flood", Message: "again"}}
	for range 6000 { // in a minute
		if r := e.Do(t.Context(), on, intent); r.Error != nil && r.Error.Reason != hostabi.ErrorUnavailable {
			t.Fatal(show(r))
		}
		now = now.Add(10 * time.Millisecond)
	}
	if raised < 60 || raised > 70 || limited != 6000-raised {
		t.Errorf("%d events were raised and %d were not; want one a second, and 10 at first", raised, limited)
	}
}
