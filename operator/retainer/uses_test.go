package retainer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gleaner-dev/gleaner/operator/retain"
	"github.com/gleaner-dev/gleaner/operator/retainer"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// What a Pod uses stays, also if the watch has not shown the Pod yet, or if Pods can't be listed.
func TestRetainer_KeepsWhatIsUsedNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.gate.Follow()
		settings := func(name string) string {
			return fmt.Sprintf("{kind: ConfigMap, metadata: {namespace: shop, name: %s}}", name)
		}
		w.put(settings("a"), 2*time.Hour)
		w.put(settings("b"), 2*time.Hour)
		w.apply(map[string]string{"shop/old": unusedMaps})
		w.run()
		w.status("shop/old", "two objects that are due", func(s retainer.PolicyStatus) bool { return s.Due == 2 && s.UsesUnknown == "" })
		w.mu.Lock()
		w.silent = true
		w.mu.Unlock()
		w.put(`{kind: Pod, metadata: {namespace: shop, name: user}, spec: {volumes: [{configMap: {name: a}}]}}`, 0)
		w.setFails(func(verb, resource, name string) error {
			if verb == "list" && resource == "pods" && name == "shop" {
				return errors.New("no Pods today")
			}
			return nil
		})
		w.gate.Lead()
		w.status("shop/old", "why nothing is removed", func(s retainer.PolicyStatus) bool { return strings.Contains(s.Failure, "no Pods today") })
		w.expectLeft("ConfigMap", "a", "b")
		w.setFails(func(string, string, string) error { return nil })
		w.expectLeft("ConfigMap", "a")
	})
}

const usedByWidgets = `{mode: Enforce, resources: [{apiGroups: [""], resources: [configmaps]}], maxAge: 1h,
  references: [{apiGroup: example.com, resource: widgets, kind: ConfigMap, expression: "object.?spec.?config.orValue(null)"}]}`

// What custom resources refer to is used, as an expression says; and while it fails for one, everything is.
func TestRetainer_KeepsWhatCustomResourcesUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		widget := func(name, spec string) string {
			return fmt.Sprintf("{kind: Widget, metadata: {namespace: shop, name: %s}, spec: %s}", name, spec)
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			w.put(fmt.Sprintf("{kind: ConfigMap, metadata: {namespace: shop, name: %s}}", name), 2*time.Hour)
		}
		w.put("{kind: ConfigMap, metadata: {namespace: other, name: e}}", 2*time.Hour)
		w.put(widget("one", "{config: a}"), 0)
		w.put(widget("list", "{config: [b, other/e]}"), 0)
		w.put(widget("none", "{}"), 0)
		w.put(widget("broken", "{config: 7}"), 0)
		w.apply(map[string]string{"old": usedByWidgets})
		w.run()
		w.status("old", "that uses are unknown", func(s retainer.PolicyStatus) bool { return s.UsesUnknown != "" && s.Kept[retain.MaybeUsed] == 5 })
		w.remove("Widget shop/broken")
		w.expectLeft("ConfigMap", "a", "b", "e")
		w.remove("Widget shop/one")
		w.expectLeft("ConfigMap", "b", "e")
	})
}

// A resource that is not served may be served by a type to come, whose objects may use anything.
func TestRetainer_KeepsEverything_IfAReferringResourceIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.served = []string{"ConfigMap", "Namespace", "Pod", "Secret"}
		w.put("{kind: ConfigMap, metadata: {namespace: shop, name: a}}", 2*time.Hour)
		w.apply(map[string]string{"old": usedByWidgets})
		w.run()
		w.status("old", "that uses are unknown", func(s retainer.PolicyStatus) bool { return s.UsesUnknown != "" && s.Kept[retain.MaybeUsed] == 1 })
		w.apply(map[string]string{"old": unusedMaps})
		w.expectLeft("ConfigMap")
	})
}

// A type that may be served and is not followed may use anything.
func TestRetainer_KeepsWhatMayBeUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setFails(func(verb, _, _ string) error {
			if verb == "absent" {
				return errors.New("discovery fails")
			}
			return nil
		})
		w.put("{kind: ConfigMap, metadata: {namespace: shop, name: a}}", 2*time.Hour)
		w.apply(map[string]string{"shop/old": unusedMaps})
		w.run()
		w.status("shop/old", "that uses are unknown", func(s retainer.PolicyStatus) bool { return s.UsesUnknown != "" && s.Kept[retain.MaybeUsed] == 1 })
		w.expectLeft("ConfigMap", "a")
	})
}

// The lists that confirm disuse are shared by the removals of a turn: what the watch has shown since counts as well.
func TestRetainer_KeepsWhatTheWatchShowsInUse_AfterTheLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.gate.Follow()
		settings := func(name string) string {
			return fmt.Sprintf("{kind: ConfigMap, metadata: {namespace: shop, name: %s}}", name)
		}
		w.put(settings("a"), 3*time.Hour)
		w.put(settings("b"), 2*time.Hour)
		w.steps = []writer.Step{onAdmit(func(write writer.Write) {
			if write.Target.Name == "a" { // everything was listed; b is next
				w.put(`{kind: Pod, metadata: {namespace: shop, name: user}, spec: {volumes: [{configMap: {name: b}}]}}`, 0)
				w.eventually("the watch has shown it", func() bool { return w.Sees("ConfigMap", "shop", "b") })
			}
		})}
		w.apply(map[string]string{"shop/old": unusedMaps})
		w.run()
		w.status("shop/old", "two objects that are due", func(s retainer.PolicyStatus) bool { return s.Due == 2 && s.UsesUnknown == "" })
		w.gate.Lead()
		w.status("shop/old", "one in use", func(s retainer.PolicyStatus) bool { return s.Kept[retain.IsUsed] == 1 && s.Due == 0 })
		w.expectLeft("ConfigMap", "b")
	})
}

// A type that is not served any more may be served again: until the API server says that it is not, it may use anything.
func TestRetainer_KeepsWhatATypeMayUse_ThatDiscoveryHasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.gate.Follow()
		w.put("{kind: ConfigMap, metadata: {namespace: shop, name: a}}", 2*time.Hour)
		w.put(`{kind: Pod, metadata: {namespace: shop, name: user}, spec: {volumes: [{configMap: {name: a}}]}}`, 0)
		w.apply(map[string]string{"shop/old": unusedMaps})
		w.run()
		w.status("shop/old", "one in use", func(s retainer.PolicyStatus) bool { return s.Kept[retain.IsUsed] == 1 })
		proving := make(chan struct{})
		defer close(proving)
		w.setFails(func(verb, _, _ string) error {
			if verb == "absent" {
				<-proving // no response
			}
			return nil
		})
		w.serve("ConfigMap", "Namespace", "Secret")
		w.Refresh()
		w.status("shop/old", "that uses are unknown", func(s retainer.PolicyStatus) bool { return s.UsesUnknown != "" && s.Due == 0 })
	})
}
