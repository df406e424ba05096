package permissions

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gleaner-dev/gleaner/operator/escape"
)

// name of all roles and bindings.
const name = "gleaner"

// Write writes the roles, and the bindings to the operator's service account, as YAML, with
// the reasons as comments.
func Write(out io.Writer, s Setup, rights []Rule) {
	by := map[string][]Rule{}
	for _, r := range withoutRedundant(rights) {
		by[r.Namespace] = append(by[r.Namespace], r)
	}
	for i, namespace := range slices.Sorted(maps.Keys(by)) {
		if i > 0 {
			fmt.Fprintln(out, "---")
		}
		writeRole(out, namespace, mergeRules(by[namespace]))
		fmt.Fprintln(out, "---")
		writeBinding(out, s, namespace)
	}
}

func kindOf(namespace string) string {
	if namespace == "" {
		return "ClusterRole"
	}
	return "Role"
}

func writeHead(out io.Writer, kind, namespace string) {
	fmt.Fprintf(out, "apiVersion: rbac.authorization.k8s.io/v1\nkind: %s\nmetadata:\n  name: %s\n", kind, name)
	if namespace != "" {
		fmt.Fprintf(out, "  namespace: %s\n", scalar(namespace))
	}
}

func writeRole(out io.Writer, namespace string, rights []Rule) {
	writeHead(out, kindOf(namespace), namespace)
	fmt.Fprintln(out, "rules:")
	for _, r := range rights {
		for _, line := range wrapped(escape.Text(r.Reason)) {
			fmt.Fprintln(out, "  # "+line)
		}
		fmt.Fprintf(out, "  - apiGroups: %s\n    resources: %s\n", quoted(r.Groups), quoted(r.Resources))
		if len(r.Names) != 0 {
			fmt.Fprintf(out, "    resourceNames: %s\n", quoted(r.Names))
		}
		fmt.Fprintf(out, "    verbs: %s\n", quoted(r.Verbs))
	}
}

// isPlain and isWord match strings that can, and can't, be written without quotes in YAML.
var (
	isPlain = regexp.MustCompile(`^[a-z][-a-z0-9./]*$`)
	isWord  = regexp.MustCompile(`^(y|n|yes|no|on|off|true|false|null)$`)
)

// quoted returns a YAML list.
func quoted(words []string) string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = scalar(w)
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// scalar returns a YAML string, quoted if necessary.
func scalar(text string) string {
	if !isPlain.MatchString(text) || isWord.MatchString(text) {
		return strconv.Quote(text)
	}
	return text
}

func writeBinding(out io.Writer, s Setup, namespace string) {
	writeHead(out, kindOf(namespace)+"Binding", namespace)
	fmt.Fprintf(out, "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: %s\n  name: %s\nsubjects:\n- kind: ServiceAccount\n  name: %s\n  namespace: %s\n",
		kindOf(namespace), name, scalar(s.ServiceAccount), scalar(s.Namespace))
}

// withoutRedundant removes verbs that another rule already grants, and then empty rules.
func withoutRedundant(rights []Rule) []Rule {
	var list []Rule
	for i, r := range rights {
		r.Verbs = slices.DeleteFunc(slices.Clone(r.Verbs), func(verb string) bool {
			for j, wide := range rights {
				if j != i && wide.covers(r, verb) && (!r.covers(wide, verb) || j < i) {
					return true
				}
			}
			return false
		})
		if len(r.Verbs) != 0 {
			list = append(list, r)
		}
	}
	return list
}

// covers reports whether a rule grants a verb of another one.
func (r Rule) covers(other Rule, verb string) bool {
	in := func(mine, theirs []string) bool {
		return slices.Contains(mine, "*") || !slices.ContainsFunc(theirs, func(t string) bool { return !slices.Contains(mine, t) })
	}
	return len(r.Names) == 0 && (r.Namespace == "" || r.Namespace == other.Namespace) &&
		slices.Contains(r.Verbs, verb) && in(r.Groups, other.Groups) && in(r.Resources, other.Resources)
}

// mergeRules merges rules for the same resources.
func mergeRules(rights []Rule) []Rule {
	var list []Rule
	for _, r := range rights {
		at := slices.IndexFunc(list, func(o Rule) bool {
			return slices.Equal(o.Groups, r.Groups) && slices.Equal(o.Resources, r.Resources) && slices.Equal(o.Names, r.Names)
		})
		if at < 0 {
			r.Verbs = slices.Clone(r.Verbs)
			list = append(list, r)
			continue
		}
		for _, v := range r.Verbs {
			if !slices.Contains(list[at].Verbs, v) {
				list[at].Verbs = append(list[at].Verbs, v)
			}
		}
		if !strings.Contains(list[at].Reason, r.Reason) {
			list[at].Reason += " " + r.Reason
		}
	}
	return list
}

const width = 110

// wrapped wraps text into lines.
func wrapped(text string) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
