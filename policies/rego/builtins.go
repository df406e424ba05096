package rego

import (
	"github.com/open-policy-agent/opa/v1/ast"
)

// builtin is a built-in that OPA's compiler leaves to the host. What it is given
// and what it answers is measured in bytes, as Rego text.
type builtin struct {
	max int // bytes of arguments

	// cost is how many steps the call may take where that is not in proportion to
	// the bytes. An error is an argument that is not allowed.
	cost func(args []*ast.Term) (int, error)
}

// What arguments may measure, in bytes of Rego text.
const (
	mostText = 64 << 10

	text = mostText // for what takes time in proportion
	word = 1 << 10  // for what is about a number, duration, version or time
)

// allowed are the built-ins that policies may use, beside those that run within
// the module. Each is a pure function, of which the same arguments make the same
// answer on any machine.
var allowed = map[string]builtin{
	"base64url.encode_no_pad":  {max: text},
	"crypto.hmac.equal":        {max: text},
	"crypto.hmac.md5":          {max: text},
	"crypto.hmac.sha1":         {max: text},
	"crypto.hmac.sha256":       {max: text},
	"crypto.hmac.sha512":       {max: text},
	"crypto.md5":               {max: text},
	"crypto.sha1":              {max: text},
	"crypto.sha256":            {max: text},
	"glob.quote_meta":          {max: text},
	"hex.decode":               {max: text},
	"hex.encode":               {max: text},
	"indexof_n":                {max: text, cost: pairs},
	"json.patch":               {max: text, cost: patch},
	"numbers.range_step":       {max: word, cost: rangeStep},
	"object.subset":            {max: text, cost: elements},
	"regex.find_n":             {max: text, cost: find},
	"regex.replace":            {max: text, cost: replace},
	"regex.split":              {max: text, cost: find},
	"semver.compare":           {max: word},
	"semver.is_valid":          {max: word},
	"sprintf":                  {max: text, cost: format},
	"strings.any_prefix_match": {max: text},
	"strings.any_suffix_match": {max: text},
	"strings.count":            {max: text},
	"strings.split_n":          {max: text},
	"time.add_date":            {max: word, cost: utc},
	"time.clock":               {max: word, cost: utc},
	"time.date":                {max: word, cost: utc},
	"time.diff":                {max: word, cost: utc},
	"time.format":              {max: word, cost: utc},
	"time.parse_duration_ns":   {max: word},
	"time.parse_ns":            {max: word, cost: layout},
	"time.parse_rfc3339_ns":    {max: word},
	"time.weekday":             {max: word, cost: utc},
	"units.parse":              {max: word},
	"units.parse_bytes":        {max: word},
	"uri.is_valid":             {max: text},
	"uri.parse":                {max: text},
	"urlquery.decode":          {max: text},
	"urlquery.decode_object":   {max: text},
	"urlquery.encode":          {max: text},
	"urlquery.encode_object":   {max: text},
	"uuid.parse":               {max: word},
}

// refused are the built-ins that a policy may not use, or with a star all that
// begin so, and what to do instead.
var refused = map[string]string{
	"http.send":                 "a policy does no I/O; a finalizer can return an http intent",
	"net.lookup_ip_addr":        "a policy does no I/O",
	"net.cidr_contains_matches": "it is not offered; use net.cidr_contains",
	"net.cidr_is_valid":         "it is not offered; use regex.match",
	"net.cidr_merge":            "it is not offered",
	"opa.runtime":               "a policy sees nothing but its input; settings are in input.policy.settings",
	"rand.*":                    "the same request must always give the same verdict; input.idempotencyKey is different for each object",
	"uuid.rfc4122":              "the same request must always give the same verdict; use input.object.metadata.uid",
	"time.now_ns":               "the same request must always give the same verdict; use time.parse_rfc3339_ns(input.time)",
	"trace":                     "it does nothing in a module; use print in tests",
	"crypto.parse_private_keys": "a policy is given no keys",
	"crypto.x509.*":             "certificates are checked against the clock, and read differently by each version of the host",
	"graph.reachable_paths":     "there can be exponentially many paths; use graph.reachable",
	"graphql.*":                 "it is not offered",
	"internal.test_case":        "test cases belong in a file that ends in _test.rego",
	"io.jwt.*":                  "a policy is given no tokens",
	"json.marshal_with_options": "indents can grow without bounds; use json.marshal",
	"json.match_schema":         "schemas can be fetched from elsewhere; write the conditions as rules",
	"json.verify_schema":        "schemas can be fetched from elsewhere; write the conditions as rules",
	"net.cidr_expand":           "the answer can be of any size; use net.cidr_contains",
	"providers.aws.sign_req":    "a policy does no I/O; a finalizer can return an http intent",
	"regex.globs_match":         "it can take exponential time; use glob.match or regex.match",
	"regex.template_match":      "it is not offered; use regex.match",
	"rego.*":                    "a policy can't look at its own source",
	"strings.render_template":   "a template can run for ever; use sprintf or concat",
	"yaml.*":                    "YAML can refer to itself and grow without bounds; use json.unmarshal",
}

// advice says what to do instead of a built-in, if it is refused.
func advice(name string) (string, bool) {
	if text, ok := refused[name]; ok {
		return text, true
	}
	for i := range name {
		if name[i] != '.' {
			continue
		}
		if text, ok := refused[name[:i]+".*"]; ok {
			return text, true
		}
	}
	return "", false
}
