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

	// transportHeaders are set by the HTTP client.
	transportHeaders = []string{
		"connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer",
		"transfer-encoding", "upgrade",
	}
)

// Check validates grants beyond the validation rules of the custom resource. The error
// says what to write instead.
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

func checkWrites(w policies.WriteRule) error {
	switch {
	case slices.Contains(w.Groups, ownGroup):
		return fmt.Errorf("apiGroups: modules must not write objects of group %s: remove it", ownGroup)
	case slices.Contains(w.Groups, policies.Wildcard) || slices.Contains(w.Resources, policies.Wildcard):
		return errors.New("* is not allowed in write grants: list apiGroups and resources by name")
	}
	for _, resource := range w.Resources {
		if strings.Contains(resource, "/") {
			return fmt.Errorf("resources: %s is a subresource, which can't be written: remove it", resource)
		}
	}
	for _, verb := range w.Verbs {
		if !slices.Contains(verbs, verb) {
			return fmt.Errorf("verbs: unknown verb %q: write create, delete or patch", verb)
		}
	}
	return nil
}

func checkHTTP(h policies.HTTPRule) error {
	p, err := parsePattern(h.URL)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	for _, method := range h.Methods {
		if !slices.Contains(methods, method) {
			return fmt.Errorf("methods: unknown method %q: write %s", method, strings.Join(methods, ", "))
		}
	}
	if h.CA != nil && p.url.Scheme != "https" {
		return errors.New("ca: needs https: remove ca, or write https:// in url")
	}
	if err := checkHeaders(h); err != nil {
		return err
	}
	if v := h.SigV4; v != nil && (v.Region == "" || v.Service == "") {
		return errors.New("sigV4: region and service are required, such as us-east-1 and s3")
	}
	for _, network := range h.Addresses {
		if err := checkAddress(network); err != nil {
			return fmt.Errorf("addresses: %w", err)
		}
	}
	return nil
}

func checkHeaders(h policies.HTTPRule) error {
	if h.BasicAuth != nil && h.SigV4 != nil {
		return errors.New("basicAuth and sigV4 are mutually exclusive: both set the Authorization header")
	}
	var others policies.HTTPRule
	others.BasicAuth, others.SigV4 = h.BasicAuth, h.SigV4
	used := hostHeaders(others)
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return fmt.Errorf("headersFrom: %q is not a valid header name: write letters, digits and '-', such as Authorization", name)
		case slices.Contains(transportHeaders, strings.ToLower(name)):
			return fmt.Errorf("headersFrom: %s is set by the HTTP client: remove it", name)
		case slices.Contains(used, canonical):
			return fmt.Errorf("headersFrom: %s is a duplicate, or is set by basicAuth or sigV4: remove it", name)
		}
		used = append(used, canonical)
	}
	return nil
}

func checkAddress(network netip.Prefix) error {
	if !network.IsValid() {
		return errors.New("invalid network: write an address and a prefix length, such as 10.96.0.17/32")
	}
	address := network.Masked().Addr()
	one := network.IsSingleIP() || address.IsLinkLocalUnicast() || address.IsMulticast()
	if one && egress.NeverAllowed(address) {
		return fmt.Errorf("%s is a link-local, multicast or cloud metadata address, which is never reached: remove it", network)
	}
	return nil
}
