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
)

func TestRetainer_BoundsThePoliciesOfANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		specs := map[string]string{}
		for i := range 17 {
			specs[fmt.Sprintf("shop/%02d", i)] = strings.Replace(oldPods, "Enforce", "Monitor", 1)
		}
		w.apply(specs)
		w.run()
		w.status("shop/16", "that there are too many", func(s retainer.PolicyStatus) bool {
			return s.TooMany && strings.Contains(s.Problem, "more than 16 retention policies in this namespace")
		})
		w.status("shop/15", "that it is evaluated", func(s retainer.PolicyStatus) bool { return !s.Listing })
	})
}

// A namespace with too many objects has none removed, and others do.
func TestRetainer_BoundsTheObjectsOfANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.maxObjects = 400
		for i := range 300 {
			w.put(pod("big", fmt.Sprint("old", i)), 2*time.Hour)
		}
		w.put(pod("small", "old"), 2*time.Hour)
		w.apply(map[string]string{"big/a": oldPods, "big/b": oldPods, "small/old": oldPods})
		w.gate.Follow()
		w.run()
		w.eventually("a policy selects too many, and its problem says so", func() bool {
			all, _ := w.Status().Load()
			return (all["big/a"].TooMany || all["big/b"].TooMany) && strings.Contains(all["big/a"].Problem+all["big/b"].Problem, "it selects too many objects")
		})
		w.gate.Lead()
		w.eventually("that of the other namespace is removed", func() bool { return len(w.names("Pod")) == 300 })
		w.status("small/old", "the removal", func(s retainer.PolicyStatus) bool { return s.Removed[retain.TooOld] == 1 })
		if n := len(w.names("Pod")); n != 300 {
			t.Errorf("%d Pods are left; the other policy keeps what it has not decided about", n)
		}
	})
}

// While objects can't be read, a policy is not known to be carried out.
func TestRetainer_SaysThatObjectsCanNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put(pod("shop", "young"), 0)
		w.apply(map[string]string{"shop/old": oldPods})
		w.run()
		w.status("shop/old", "that it is evaluated", func(s retainer.PolicyStatus) bool { return s.Selected == 1 && s.Unreadable == "" })
		w.setFails(func(verb, resource, _ string) error {
			if verb == "list" && resource == "pods" {
				return errors.New("etcd is down")
			}
			return nil
		})
		w.endWatches("pods")
		w.status("shop/old", "why", func(s retainer.PolicyStatus) bool { return strings.Contains(s.Unreadable, "etcd is down") })
		w.setFails(func(string, string, string) error { return nil })
		w.status("shop/old", "that they can be read", func(s retainer.PolicyStatus) bool { return s.Unreadable == "" })
	})
}
