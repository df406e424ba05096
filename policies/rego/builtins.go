package rego

import (
	"github.com/open-policy-agent/opa/v1/ast"
)

// builtin is a built-in that the host implements. Its arguments and result are
// measured in bytes of Rego text.
type builtin struct {
	max int // bytes of arguments

	// cost returns the number of steps of a call, if they are not proportional to
	// the bytes. An error rejects the arguments.
	cost func(args []*ast.Term) (int, error)
}

// Maximum sizes of arguments, in bytes of Rego text.
const (
	maxArgumentBytes = 64 << 10

	text = maxArgumentBytes // for built-ins that take linear time
	word = 1 << 10          // for numbers, durations, versions and times
)

// allowed are the built-ins of the host that policies may use, in addition to those
// that run within the module. Each is a pure function with the same result on every
// machine.
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
	"indexof_n":                {max: text, cost: costPairs},
	"json.patch":               {max: text, cost: costPatch},
	"numbers.range_step":       {max: word, cost: costRangeStep},
	"object.subset":            {max: text, cost: costElements},
	"regex.find_n":             {max: text, cost: costFind},
	"regex.replace":            {max: text, cost: costReplace},
	"regex.split":              {max: text, cost: costFind},
	"semver.compare":           {max: word},
	"semver.is_valid":          {max: word},
	"sprintf":                  {max: text, cost: costFormat},
	"strings.any_prefix_match": {max: text},
	"strings.any_suffix_match": {max: text},
	"strings.count":            {max: text},
	"strings.split_n":          {max: text},
	"time.add_date":            {max: word, cost: requireUTC},
	"time.clock":               {max: word, cost: requireUTC},
	"time.date":                {max: word, cost: requireUTC},
	"time.diff":                {max: word, cost: requireUTC},
	"time.format":              {max: word, cost: requireUTC},
	"time.parse_duration_ns":   {max: word},
	"time.parse_ns":            {max: word, cost: requireZonelessLayout},
	"time.parse_rfc3339_ns":    {max: word},
	"time.weekday":             {max: word, cost: requireUTC},
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

// forbidden are the built-ins that a policy may not use, with the advice what to use
// instead. A * at the end is a wildcard.
var forbidden = map[string]string{
	"http.send":                 "a policy does no I/O; a finalizer can return an http intent",
	"net.lookup_ip_addr":        "a policy does no I/O",
	"net.cidr_contains_matches": "it is not supported; use net.cidr_contains",
	"net.cidr_is_valid":         "it is not supported; use regex.match",
	"net.cidr_merge":            "it is not supported",
	"opa.runtime":               "a policy has no data but its input; settings are in input.policy.settings",
	"rand.*":                    "the same request must always give the same verdict; input.idempotencyKey is different for each object",
	"uuid.rfc4122":              "the same request must always give the same verdict; use input.object.metadata.uid",
	"time.now_ns":               "the same request must always give the same verdict; use time.parse_rfc3339_ns(input.time)",
	"trace":                     "it does nothing in a module; use print in tests",
	"crypto.parse_private_keys": "a policy has no access to keys",
	"crypto.x509.*":             "the result depends on the clock and on the version of the host",
	"graph.reachable_paths":     "there can be exponentially many paths; use graph.reachable",
	"graphql.*":                 "it is not supported",
	"internal.test_case":        "test cases belong in a file that ends in _test.rego",
	"io.jwt.*":                  "a policy has no access to tokens",
	"json.marshal_with_options": "indents can grow without bounds; use json.marshal",
	"json.match_schema":         "schemas can be fetched over the network; write the conditions as rules",
	"json.verify_schema":        "schemas can be fetched over the network; write the conditions as rules",
	"net.cidr_expand":           "the result can have any size; use net.cidr_contains",
	"providers.aws.sign_req":    "a policy does no I/O; a finalizer can return an http intent",
	"regex.globs_match":         "it can take exponential time; use glob.match or regex.match",
	"regex.template_match":      "it is not supported; use regex.match",
	"rego.*":                    "a policy cannot access its source",
	"strings.render_template":   "a template can run forever; use sprintf or concat",
	"yaml.*":                    "YAML can refer to itself and grow without bounds; use json.unmarshal",
}

// advice returns what to use instead of a built-in, and whether the built-in is
// forbidden.
func advice(name string) (string, bool) {
	if text, ok := forbidden[name]; ok {
		return text, true
	}
	for i := range name {
		if name[i] != '.' {
			continue
		}
		if text, ok := forbidden[name[:i]+".*"]; ok {
			return text, true
		}
	}
	return "", false
}
