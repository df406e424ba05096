package intents

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
)

var (
	verbs   = []policies.Verb{policies.VerbCreate, policies.VerbDelete, policies.VerbPatch}
	methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

	// transportHeaders are those that belong to the connection.
	transportHeaders = []string{
		"connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer",
		"transfer-encoding", "upgrade",
	}
)

// Check sees that grants can be carried out: also what no rule of the custom
// resource finds. The error says what to write instead.
func Check(g policies.Grants) error {
	for i, w := range g.Write {
		if err := checkWrites(w); err != nil {
			return fmt.Errorf("write[%d]: %w", i, err)
		}
	}
	for i, h := range g.HTTP {
		if err := checkHTTP(h); err != nil {
			return fmt.Errorf("http[%d]: %w", i, err)
		}
	}
	return nil
}

func checkWrites(w policies.Writes) error {
	switch {
	case slices.Contains(w.Groups, own):
		return fmt.Errorf("apiGroups: objects of the group %s are not written by modules: leave it out", own)
	case slices.Contains(w.Groups, policies.All) || slices.Contains(w.Resources, policies.All):
		return errors.New("what may be written is listed by name: write groups and resources in place of *")
	}
	for _, resource := range w.Resources {
		if strings.Contains(resource, "/") {
			return fmt.Errorf("resources: %s is a subresource, which can't be written: leave it out", resource)
		}
	}
	for _, verb := range w.Verbs {
		if !slices.Contains(verbs, verb) {
			return fmt.Errorf("verbs: there is no %q: write create, delete or patch", verb)
		}
	}
	return nil
}

func checkHTTP(h policies.HTTP) error {
	p, err := parsePattern(h.URL)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	for _, method := range h.Methods {
		if !slices.Contains(methods, method) {
			return fmt.Errorf("methods: there is no %q: write %s", method, strings.Join(methods, ", "))
		}
	}
	if h.CA != nil && p.url.Scheme != "https" {
		return errors.New("ca: certificates are for https: leave ca out, or write https:// in url")
	}
	if err := checkHeaders(h); err != nil {
		return err
	}
	if v := h.SigV4; v != nil && (v.Region == "" || v.Service == "") {
		return errors.New("sigV4: write the region and the service that requests are signed for, such as us-east-1 and s3")
	}
	for _, network := range h.Addresses {
		if err := checkAddress(network); err != nil {
			return fmt.Errorf("addresses: %w", err)
		}
	}
	return nil
}

func checkHeaders(h policies.HTTP) error {
	if h.Basic != nil && h.SigV4 != nil {
		return errors.New("write at most one of basicAuth and sigV4: both write the header Authorization")
	}
	var others policies.HTTP
	others.Basic, others.SigV4 = h.Basic, h.SigV4
	taken := hostHeaders(others)
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return fmt.Errorf("headersFrom: %q is no name of a header: write letters, digits and '-', such as Authorization", name)
		case slices.Contains(transportHeaders, strings.ToLower(name)):
			return fmt.Errorf("headersFrom: %s belongs to the connection, which is the host's: leave it out", name)
		case slices.Contains(taken, canonical):
			return fmt.Errorf("headersFrom: %s is there already, from basicAuth, sigV4 or in another spelling: leave it out", name)
		}
		taken = append(taken, canonical)
	}
	return nil
}

func checkAddress(network netip.Prefix) error {
	if !network.IsValid() {
		return errors.New("one is no network: write an address and its length, such as 10.96.0.17/32")
	}
	address := network.Masked().Addr()
	one := network.IsSingleIP() || address.IsLinkLocalUnicast() || address.IsMulticast()
	if one && egress.Never(address) {
		return fmt.Errorf("%s is of the machine's own network or of a cloud's metadata, and is never reached: leave it out", network)
	}
	return nil
}
