package policies

import (
	"encoding/json"
	"fmt"
)

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// quoted is a text as JSON.
func quoted(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// reader makes a service account that may get and list a resource in the test's
// namespace.
func (w *world) reader(name, resource string) {
	w.Helper()
	w.apply(fmt.Sprintf(`{kind: ServiceAccount, metadata: {name: %s}}`, name))
	w.apply(fmt.Sprintf(`
kind: Role
metadata: {name: %s}
rules: [{apiGroups: [""], resources: [%s], verbs: [get, list]}]`, name, resource))
	w.apply(fmt.Sprintf(`
kind: RoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: NS}]`, name))
}
