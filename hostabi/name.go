package hostabi

import "strings"

// What names may consist of. They end up in the paths of API calls, so nothing
// may be in them by which one becomes the path of another.

func (o object) apiVersion() string {
	s := o.needText("apiVersion")
	group, version := splitAPIVersion(s)
	grouped := strings.Contains(s, "/")
	o.check("apiVersion", isDNSName(version) && grouped == (group != "") && (!grouped || isDNSName(group)),
		"write group/version, such as \"apps/v1\", or \"v1\" for the core group")
	return s
}

func (o object) kindName() string {
	s := o.needText("kind")
	o.check("kind", isWord(s), "write a kind, such as \"ConfigMap\"")
	return s
}

func (o object) objectName() string {
	s := o.needText("name")
	o.check("name", isPathSegment(s), "write a name of at most 253 bytes without '/' and '%'")
	return s
}

func (o object) namespace() string {
	s := o.text("namespace")
	o.check("namespace", s == "" || len(s) <= 63 && isDNSName(s), "write a namespace, or leave it out")
	return s
}

// splitAPIVersion gives group and version; the version has a '/' in it if there
// is more than one.
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

// consists tells whether a text is of this length at most, has one character at
// least, and has none but these.
func consists(s string, most int, of string) bool {
	return s != "" && len(s) <= most && strings.Trim(s, of) == ""
}

func isDNSName(s string) bool {
	return consists(s, 253, lower+digits+"-.") && strings.Trim(s, "-.") == s
}
func isWord(s string) bool  { return consists(s, 63, letters+digits) }
func isID(s string) bool    { return consists(s, 63, letters+digits+"-_.") }
func isToken(s string) bool { return consists(s, 128, letters+digits+"!#$%&'*+-.^_`|~") }

// isPathSegment is as wide as the API server's own rule: roles have names with
// ':' in them.
func isPathSegment(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 253 && !strings.ContainsAny(s, "/%") && !hasControl(s)
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
