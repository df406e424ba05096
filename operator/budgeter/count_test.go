package budgeter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

func TestBudget_PercentageIsCountedForEachWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, budget("b", intstr.FromString("10%"), time.Minute))
		a.count = 39
		r := a.start("a")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		r.work(ctx, many("o", 10)...)
		cancel()
		a.expectDeleted(3)
		a.set(func() { a.count = 9 })
		ctx, cancel = context.WithTimeout(t.Context(), 75*time.Second)
		r.work(ctx, many("p", 10)...)
		cancel()
		a.expectDeleted(4) // at least one
	})
}

func TestBudget_WhoseObjectsCannotBeCountedSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, budget("b", intstr.FromString("10%"), time.Minute))
		a.count, a.countErr = 50, errors.New("list configmaps: forbidden")
		r := a.start("a")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		r.work(ctx, many("o", 5)...)
		a.expectDeleted(0)
		accepted := apimeta.FindStatusCondition(a.read().Status.Conditions, v1alpha1.ConditionAccepted)
		if accepted == nil || accepted.Status != metav1.ConditionFalse || accepted.Reason != "CountFailed" || !strings.Contains(accepted.Message, "list configmaps: forbidden") {
			t.Errorf("condition %+v", accepted)
		}
		if err := r.delete(configMap("shop", "o0")); err == nil || !strings.Contains(err.Error(), "list configmaps: forbidden") {
			t.Errorf("waits because of %v", err)
		}
		a.set(func() { a.countErr = nil })
		ctx, cancel = context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		r.work(ctx, many("o", 5)...)
		a.expectDeleted(5)
		if !apimeta.IsStatusConditionTrue(a.read().Status.Conditions, v1alpha1.ConditionAccepted) {
			t.Errorf("status %+v", a.read().Status)
		}
	})
}

// Counting the objects of one namespace takes its time, and delays no other budget.
func TestBudget_CountingDelaysNoOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []client.Object
		for i := range 16 {
			b := budget(fmt.Sprint("slow", i), intstr.FromString("10%"), time.Minute)
			b.Namespace = "slow"
			all = append(all, b)
		}
		part := budget("part", intstr.FromString("50%"), time.Minute)
		part.Spec.Resources[0].Resources = []string{"secrets"}
		a := newAPI(t, append(all, budget("b", intstr.FromInt32(100), time.Minute), part)...)
		a.blocks, a.count = map[string]bool{"slow": true}, 100
		r := a.start("a")
		secret := configMap("shop", "secret")
		secret.Kind.Kind = "Secret"
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r.work(ctx, append(many("o", 10), secret)...)
		a.expectDeleted(11)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
