package policystatus

import (
	"fmt"
	"strings"

	"github.com/gleaner-dev/gleaner/policies/worker"
)

// maxNamespaces bounds how many namespaces a message names.
const maxNamespaces = 5

// quarantined returns for which objects the module of a policy or finalizer is not run for
// now, and why; "" if it is run.
func (w *Writer) quarantined(policy string) string {
	if w.options.Sandbox == nil {
		return ""
	}
	var found []worker.Quarantined
	for _, q := range w.options.Sandbox.Quarantined() {
		if q.Policy == policy {
			found = append(found, q)
		}
	}
	if len(found) == 0 {
		return ""
	}
	first := found[0]
	if first.AllObjects {
		return fmt.Sprintf("its module is not run, since %s; it is tried again at %s: change the module, or its limits", first.Message, at(first))
	}
	var names []string
	for _, q := range found[:min(len(found), maxNamespaces)] {
		name := q.Namespace
		if name == "" {
			name = "no namespace"
		}
		names = append(names, name)
	}
	if more := len(found) - maxNamespaces; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("its module is not run for objects in %s, since for one of them, %s; it is tried again at %s: change the module, or its limits",
		strings.Join(names, ", "), first.Message, at(first))
}

// at rounds to minutes, since the status is written whenever it changes.
func at(q worker.Quarantined) string { return q.Until.UTC().Format("15:04 UTC") }
