package hostabi

import "strings"

// Names become part of the paths of API requests, so they must not contain anything
// that could change the path.

func (o object) apiVersion() string {
	s := o.requiredText("apiVersion")
	group, version := splitAPIVersion(s)
	grouped := strings.Contains(s, "/")
	o.check("apiVersion", isDNSName(version) && grouped == (group != "") && (!grouped || isDNSName(group)),
		"write group/version, such as \"apps/v1\", or \"v1\" for the core group")
	return s
}

func (o object) kindName() string {
	s := o.requiredText("kind")
	o.check("kind", isWord(s), "write a kind, such as \"ConfigMap\"")
	return s
}

func (o object) objectName() string {
	s := o.requiredText("name")
	o.check("name", isPathSegment(s), "write a name of at most 253 bytes without '/' and '%'")
	return s
}

func (o object) namespace() string {
	s := o.text("namespace")
	o.check("namespace", s == "" || len(s) <= 63 && isDNSName(s), "write a namespace, or remove it")
	return s
}

// splitAPIVersion returns group and version. The version contains a '/' if s has
// more than one.
func splitAPIVersion(s string) (group, version string) {
	if group, version, ok := strings.Cut(s, "/"); ok {
		return group, version
	}
	return "", s
}

const (
	lower   = "abcdefghijklmnopqrstuvwxyz"
	letters = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
)

// consistsOf reports whether s is not empty, has at most most bytes, and consists of
// the characters of of only.
func consistsOf(s string, maxBytes int, chars string) bool {
	return s != "" && len(s) <= maxBytes && strings.Trim(s, chars) == ""
}

func isDNSName(s string) bool {
	return consistsOf(s, 253, lower+digits+"-.") && strings.Trim(s, "-.") == s
}
func isWord(s string) bool  { return consistsOf(s, 63, letters+digits) }
func isID(s string) bool    { return consistsOf(s, 63, letters+digits+"-_.") }
func isToken(s string) bool { return consistsOf(s, 128, letters+digits+"!#$%&'*+-.^_`|~") }

// isPathSegment is as permissive as the API server's own rule: names of roles may
// contain ':'.
func isPathSegment(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 253 && !strings.ContainsAny(s, "/%") && !hasControl(s)
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
