package rights

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// name of all roles and bindings.
const name = "gleaner"

// Write writes the roles that give rights, and the bindings that give the roles to
// the operator's service account, as YAML with the reasons as comments.
func Write(out io.Writer, s Setup, rights []Right) error {
	by := map[string][]Right{}
	for _, r := range rights {
		by[r.Namespace] = append(by[r.Namespace], r)
	}
	for i, namespace := range slices.Sorted(maps.Keys(by)) {
		if i > 0 {
			fmt.Fprintln(out, "---")
		}
		if err := writeRole(out, namespace, merged(by[namespace])); err != nil {
			return err
		}
		fmt.Fprintln(out, "---")
		writeBinding(out, s, namespace)
	}
	return nil
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
		fmt.Fprintf(out, "  namespace: %s\n", namespace)
	}
}

func writeRole(out io.Writer, namespace string, rights []Right) error {
	writeHead(out, kindOf(namespace), namespace)
	fmt.Fprintln(out, "rules:")
	for _, r := range rights {
		for _, line := range wrapped(r.Why) {
			fmt.Fprintln(out, "  # "+line)
		}
		data, err := yaml.Marshal([]rbacv1.PolicyRule{r.Rule()})
		if err != nil {
			return fmt.Errorf("write a rule: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			fmt.Fprint(out, "  "+line)
		}
	}
	return nil
}

func writeBinding(out io.Writer, s Setup, namespace string) {
	writeHead(out, kindOf(namespace)+"Binding", namespace)
	fmt.Fprintf(out, "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: %s\n  name: %s\nsubjects:\n- kind: ServiceAccount\n  name: %s\n  namespace: %s\n",
		kindOf(namespace), name, s.Account, s.Namespace)
}

// Rule is the right as RBAC has it.
func (r Right) Rule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: r.Groups, Resources: r.Resources, ResourceNames: r.Names, Verbs: r.Verbs}
}

// merged puts rights together that are about the same, and takes those of the same
// rule for one.
func merged(rights []Right) []Right {
	var list []Right
	for _, r := range rights {
		at := slices.IndexFunc(list, func(o Right) bool {
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
		if !strings.Contains(list[at].Why, r.Why) {
			list[at].Why += " " + r.Why
		}
	}
	return list
}

const width = 110

// wrapped is text in lines.
func wrapped(text string) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(cmp.Or(line, "")+" "+word, " ")
	}
	return append(lines, line)
}
