package server

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

func TestA04_InvalidRequests(t *testing.T) {
	a := newAPI(t)
	custom := a.createType()
	both := orphanDependents(true)
	both.PropagationPolicy = ptr.To(orphanPolicy)
	for name, try := range map[string]func(*api, kind) error{
		"a policy with orphanDependents": func(b *api, k kind) error {
			return b.client(k).Delete(b.Context(), b.createNew(k).GetName(), both)
		},
		"an unknown policy": func(b *api, k kind) error {
			return b.client(k).Delete(b.Context(), b.createNew(k).GetName(), deleteOptions("Sideways"))
		},
		"created with both finalizers": func(b *api, k kind) error {
			_, err := b.client(k).Create(b.Context(), object(k, orphanFinalizer, foregroundFinal), metav1.CreateOptions{})
			return err
		},
		"updated to have both finalizers": func(b *api, k kind) error {
			return b.patch(k, b.createNew(k, orphanFinalizer), map[string]any{"finalizers": []string{orphanFinalizer, foregroundFinal}})
		},
		"a finalizer that is not a qualified name": func(b *api, k kind) error {
			_, err := b.client(k).Create(b.Context(), object(k, "not a name"), metav1.CreateOptions{})
			return err
		},
	} {
		for _, k := range []kind{configMap, custom} {
			t.Run(name+", "+k.String(), func(t *testing.T) {
				if err := try(a.forSubtest(t), k); !apierrors.IsInvalid(err) {
					t.Errorf("got error %v", err)
				}
			})
		}
	}
}

func TestA05_Preconditions(t *testing.T) {
	a := newAPI(t)
	for _, k := range []kind{configMap, a.createType(), pod} {
		for name, c := range map[string]struct {
			change   func(*metav1.Preconditions)
			conflict bool
		}{
			"both match":               {func(*metav1.Preconditions) {}, false},
			"another UID":              {func(p *metav1.Preconditions) { p.UID = ptr.To[types.UID]("another") }, true},
			"an older resourceVersion": {func(p *metav1.Preconditions) { p.ResourceVersion = ptr.To("1") }, true},
			"no UID":                   {func(p *metav1.Preconditions) { p.UID = nil }, false},
			"no resourceVersion":       {func(p *metav1.Preconditions) { p.ResourceVersion = nil }, false},
		} {
			t.Run(name+", "+k.String(), func(t *testing.T) {
				b := a.forSubtest(t)
				o := b.createNew(k)
				conditions := metav1.Preconditions{UID: ptr.To(o.GetUID()), ResourceVersion: ptr.To(o.GetResourceVersion())}
				c.change(&conditions)
				err := b.client(k).Delete(b.Context(), o.GetName(), metav1.DeleteOptions{Preconditions: &conditions})
				if apierrors.IsConflict(err) != c.conflict || !c.conflict && err != nil {
					t.Errorf("got error %v", err)
				}
				if gone := b.get(k, o) == nil; gone == c.conflict {
					t.Errorf("gone: %t", gone)
				}
			})
		}
	}
}

func TestA06_ObjectWithAFinalizer(t *testing.T) {
	a := newAPI(t)
	for _, k := range []kind{configMap, a.createType(), deployment} {
		t.Run(k.String(), func(t *testing.T) {
			b := a.forSubtest(t)
			before := b.createNew(k, testFinalizer)
			b.delete(k, before, deleteOptions(""))
			first := b.get(k, before)
			if first.GetDeletionTimestamp() == nil || first.GetDeletionGracePeriodSeconds() == nil || *first.GetDeletionGracePeriodSeconds() != 0 {
				t.Errorf("object is now %v", first)
			}
			if want := before.GetGeneration() + 1; before.GetGeneration() != 0 && first.GetGeneration() != want {
				t.Errorf("generation is %d, want %d", first.GetGeneration(), want)
			}
			b.delete(k, before, deleteOptions(foregroundPolicy))
			second := b.get(k, before)
			if !second.GetDeletionTimestamp().Equal(first.GetDeletionTimestamp()) {
				t.Errorf("a second delete changed the time from %s to %s", first.GetDeletionTimestamp(), second.GetDeletionTimestamp())
			}
		})
	}
}

func TestA06_ObjectWithoutFinalizers_IsDeletedInOneStep(t *testing.T) {
	a := newAPI(t)
	for _, k := range []kind{configMap, a.createType()} {
		t.Run(k.String(), func(t *testing.T) {
			b := a.forSubtest(t)
			o := b.createNew(k)
			stream, err := b.client(k).Watch(b.Context(), metav1.ListOptions{ResourceVersion: o.GetResourceVersion()})
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Stop()
			b.delete(k, o, deleteOptions(backgroundPolicy))
			event := b.nextEvent(stream)
			if last := event.Object.(*unstructured.Unstructured); event.Type != watch.Deleted || last.GetDeletionTimestamp() != nil {
				t.Errorf("got watch event %s %v", event.Type, last)
			}
		})
	}
}

func (a *api) nextEvent(stream watch.Interface) watch.Event {
	a.Helper()
	select {
	case event := <-stream.ResultChan():
		if _, ok := event.Object.(*unstructured.Unstructured); !ok {
			a.Fatalf("got watch event %v", event)
		}
		return event
	case <-time.After(timeout):
		a.Fatal("no watch event")
	}
	return watch.Event{}
}

func TestA08_ChangesOfATerminatingObject(t *testing.T) {
	a := newAPI(t)
	owner := a.createNew(configMap)
	reference := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.GetName(), UID: owner.GetUID()}}
	for _, k := range []kind{configMap, a.createType()} {
		for name, c := range map[string]struct {
			change  map[string]any
			refused bool
		}{
			"no finalizer can be added":       {map[string]any{"finalizers": []string{testFinalizer, "test.gleaner.dev/more"}}, true},
			"not even orphan":                 {map[string]any{"finalizers": []string{testFinalizer, orphanFinalizer}}, true},
			"nor in exchange":                 {map[string]any{"finalizers": []string{foregroundFinal}}, true},
			"one can be removed":              {map[string]any{"finalizers": nil}, false},
			"labels can be changed":           {map[string]any{"labels": map[string]string{"a": "b"}}, false},
			"annotations can be changed":      {map[string]any{"annotations": map[string]string{"a": "b"}}, false},
			"an owner reference can be added": {map[string]any{"ownerReferences": reference}, false},
		} {
			t.Run(name+", "+k.String(), func(t *testing.T) {
				b := a.forSubtest(t)
				o := b.createNew(k, testFinalizer)
				b.delete(k, o, deleteOptions(backgroundPolicy))
				if err := b.patch(k, o, c.change); apierrors.IsInvalid(err) != c.refused || !c.refused && err != nil {
					t.Errorf("got error %v", err)
				}
			})
		}
	}
}

func TestA09_SecondDelete_ReplacesThePolicy(t *testing.T) {
	a := newAPI(t)
	policies := []metav1.DeletionPropagation{"", backgroundPolicy, foregroundPolicy, orphanPolicy}
	want := [][]string{ // by the first delete, then by the second
		{"", "", foregroundFinal, orphanFinalizer},
		{"", "", foregroundFinal, orphanFinalizer},
		{foregroundFinal, "", foregroundFinal, orphanFinalizer},
		{orphanFinalizer, "", foregroundFinal, orphanFinalizer},
	}
	for _, k := range []kind{configMap, a.createType()} {
		for i, first := range policies {
			for j, second := range policies {
				t.Run(fmt.Sprintf("%s, %q then %q", k, first, second), func(t *testing.T) {
					b := a.forSubtest(t)
					o := b.createNew(k, testFinalizer)
					b.delete(k, o, deleteOptions(first))
					b.delete(k, o, deleteOptions(second))
					b.expectFinalizers(k, o, want[i][j])
				})
			}
		}
	}
}

// The exception: during a pod's grace period, a second delete takes effect only if it
// shortens the period.
func TestA09_SecondDelete_OfAPod_MustShortenTheGracePeriod(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct {
		graces []int64 // of the deletes after the first, which gives thirty seconds
		want   string
	}{
		{[]int64{30}, ""}, {[]int64{40}, ""}, {[]int64{10}, foregroundFinal}, {[]int64{0}, foregroundFinal},
		{[]int64{0, 0}, foregroundFinal}, {[]int64{10, 10}, foregroundFinal},
	} {
		t.Run(fmt.Sprint(c.graces), func(t *testing.T) {
			b := a.forSubtest(t)
			o := b.createScheduledPod()
			first := deleteOptions(backgroundPolicy)
			first.GracePeriodSeconds = ptr.To[int64](30)
			b.delete(pod, o, first)
			for _, grace := range c.graces {
				again := deleteOptions(foregroundPolicy)
				again.GracePeriodSeconds = ptr.To(grace)
				b.delete(pod, o, again)
			}
			b.expectFinalizers(pod, o, c.want)
		})
	}
	t.Run("without a remaining period, every delete counts again", func(t *testing.T) {
		b := a.forSubtest(t)
		o := b.createScheduledPod()
		for _, step := range []struct {
			policy metav1.DeletionPropagation
			want   string
		}{{backgroundPolicy, ""}, {foregroundPolicy, foregroundFinal}, {orphanPolicy, orphanFinalizer}, {backgroundPolicy, ""}} {
			options := deleteOptions(step.policy)
			options.GracePeriodSeconds = ptr.To[int64](0)
			b.delete(pod, o, options)
			b.expectFinalizers(pod, o, step.want)
		}
	})
}

// createScheduledPod creates a pod on a node, whose kubelet would have to end it.
func (a *api) createScheduledPod() *unstructured.Unstructured {
	a.Helper()
	o := object(pod, testFinalizer)
	spec := containers("Always")
	spec["nodeName"] = "node"
	o.Object["spec"] = spec
	return a.create(pod, o)
}

// The resourceVersions of one object can be compared: the collector does so, and
// this API server's are numbers.
func TestResourceVersions_OfAnObject_Increase(t *testing.T) {
	a := newAPI(t)
	o := a.createNew(configMap, testFinalizer)
	version := func() int {
		n, err := strconv.Atoi(a.get(configMap, o).GetResourceVersion())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	last := version()
	for _, policy := range []metav1.DeletionPropagation{backgroundPolicy, foregroundPolicy, orphanPolicy} {
		a.delete(configMap, o, deleteOptions(policy))
		next := version()
		if next <= last {
			t.Errorf("version %d was followed by %d", last, next)
		}
		last = next
	}
}
