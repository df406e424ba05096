package pause

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
)

// api is an API server with an operator that says which pauses are in force.
type api struct {
	client.Client
	t *testing.T
}

func newAPI(t *testing.T, all ...client.Object) *api {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &api{fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).WithInterceptorFuncs(interceptor.Funcs{Get: confirmed}).Build(), t}
}

// confirmed reads a pause, which is in force.
func confirmed(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if err := c.Get(ctx, key, o); err != nil {
		return err
	}
	in := metav1.Condition{Type: v1alpha1.ConditionInForce, Status: metav1.ConditionTrue, ObservedGeneration: o.GetGeneration()}
	switch o := o.(type) {
	case *v1alpha1.ClusterPause:
		meta.SetStatusCondition(&o.Status.Conditions, in)
	case *v1alpha1.Pause:
		meta.SetStatusCondition(&o.Status.Conditions, in)
	}
	return nil
}

// flagsOf parses the flags of a scope.
func flagsOf(namespace, policy, finalizer string) scopeFlags {
	f := scopeFlags{Flags: kubectl.NewFlags(), policy: policy, finalizer: finalizer}
	*f.Namespace = namespace
	return f
}

func (a *api) pause(f scopeFlags, spec v1alpha1.PauseSpec) string {
	a.t.Helper()
	at, err := f.scope()
	if err != nil {
		a.t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&pauseOptions{scopeFlags: f}).pause(a.t.Context(), a, at, spec, &out); err != nil {
		a.t.Fatal(err)
	}
	return out.String()
}

func (a *api) resume(f scopeFlags, all bool) string {
	a.t.Helper()
	at, err := f.scope()
	if err != nil {
		a.t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&resumeOptions{scopeFlags: f, all: all}).resume(a.t.Context(), a, at, &out); err != nil {
		a.t.Fatal(err)
	}
	return out.String()
}

func (a *api) expectPauses(want ...string) {
	a.t.Helper()
	all, err := readAll(a.t.Context(), a)
	if err != nil {
		a.t.Fatal(err)
	}
	var got []string
	for _, r := range all {
		p := r.Pause()
		got = append(got, strings.TrimSpace(p.String()+" "+p.Policy))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		a.t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

func TestPause_CreatesThePauseOfEachScope(t *testing.T) {
	for _, c := range []struct{ namespace, policy, finalizer, pause, says string }{
		{"", "", "", "ClusterPause all", "Created clusterpause.gleaner.dev/all.\nPaused everything in the whole cluster. To end it: gleaner resume\n"},
		{"shop", "", "", "Pause shop/all", "Created pause.gleaner.dev/all in namespace shop.\nPaused everything in namespace shop. To end it: gleaner resume -n shop\n"},
		{"", "keep", "", "ClusterPause clustergcpolicy.keep ClusterGCPolicy keep", "Created clusterpause.gleaner.dev/clustergcpolicy.keep.\nPaused what ClusterGCPolicy keep decides in the whole cluster. To end it: gleaner resume --policy keep\n"},
		{"", "shop/keep", "", "Pause shop/gcpolicy.keep GCPolicy shop/keep", "Created pause.gleaner.dev/gcpolicy.keep in namespace shop.\nPaused what GCPolicy shop/keep decides in namespace shop. To end it: gleaner resume --policy shop/keep\n"},
		{"shop", "keep", "", "Pause shop/clustergcpolicy.keep ClusterGCPolicy keep", "Created pause.gleaner.dev/clustergcpolicy.keep in namespace shop.\nPaused what ClusterGCPolicy keep decides in namespace shop. To end it: gleaner resume -n shop --policy keep\n"},
		{"", "", "shop/bucket", "Pause shop/finalizer.bucket Finalizer shop/bucket", "Created pause.gleaner.dev/finalizer.bucket in namespace shop.\nPaused what Finalizer shop/bucket decides in namespace shop. To end it: gleaner resume --finalizer shop/bucket\n"},
		{"", "", "bucket", "ClusterPause clusterfinalizer.bucket ClusterFinalizer bucket", "Created clusterpause.gleaner.dev/clusterfinalizer.bucket.\nPaused what ClusterFinalizer bucket decides in the whole cluster. To end it: gleaner resume --finalizer bucket\n"},
	} {
		a := newAPI(t)
		f := flagsOf(c.namespace, c.policy, c.finalizer)
		if diff := cmp.Diff(c.says, a.pause(f, v1alpha1.PauseSpec{})); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		a.expectPauses(c.pause)
		a.resume(f, false)
		a.expectPauses()
	}
}

func TestPause_AgainReplacesItsReasonAndEnd(t *testing.T) {
	a := newAPI(t)
	until := metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	a.pause(flagsOf("", "keep", ""), v1alpha1.PauseSpec{Reason: "first"})
	want := "Updated clusterpause.gleaner.dev/clustergcpolicy.keep.\nPaused what ClusterGCPolicy keep decides in the whole cluster until 2030-01-02T03:04:05Z. To end it: gleaner resume --policy keep\n"
	if diff := cmp.Diff(want, a.pause(flagsOf("", "keep", ""), v1alpha1.PauseSpec{Reason: "second", Until: &until})); diff != "" {
		t.Error(diff)
	}
	all, err := readAll(t.Context(), a)
	if err != nil || len(all) != 1 || all[0].Spec.Reason != "second" || !all[0].Spec.Until.Equal(&until) || all[0].Pause().Policy != "ClusterGCPolicy keep" {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestPause_WithoutAnOperatorIsNotConfirmed(t *testing.T) {
	a := newAPI(t)
	a.Client = interceptor.NewClient(a.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			if err := c.Get(ctx, key, o); err != nil {
				return err
			}
			o.(*v1alpha1.ClusterPause).Status = v1alpha1.PauseStatus{}
			return nil
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := (&pauseOptions{}).pause(ctx, a, scope{}, v1alpha1.PauseSpec{}, &bytes.Buffer{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	a.expectPauses("ClusterPause all")
}

func TestResume_EndsExactlyTheScope_AndSaysWhatIsStillPaused(t *testing.T) {
	a := newAPI(t,
		&v1alpha1.ClusterPause{ObjectMeta: metav1.ObjectMeta{Name: "from-git"}, Spec: v1alpha1.PauseSpec{Reason: "migration"}},
		&v1alpha1.Pause{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mine"}},
		&v1alpha1.Pause{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "theirs"}},
	)
	if got, want := a.resume(flagsOf("shop", "", ""), false), "Deleted pause.gleaner.dev/mine in namespace shop.\nEverything is paused by ClusterPause from-git (migration).\n"; got != want {
		t.Errorf("says %q", got)
	}
	if got, want := a.resume(flagsOf("shop", "", ""), false), "There is no pause of everything in namespace shop.\nEverything is paused by ClusterPause from-git (migration).\n"; got != want {
		t.Errorf("says %q", got)
	}
	a.expectPauses("ClusterPause from-git", "Pause other/theirs")
	if got, want := a.resume(flagsOf("", "", ""), true), "Deleted clusterpause.gleaner.dev/from-git.\nDeleted pause.gleaner.dev/theirs in namespace other.\n"; got != want {
		t.Errorf("says %q", got)
	}
	a.expectPauses()
}

func TestScope_InvalidFlagsSayWhatToWriteInstead(t *testing.T) {
	for _, c := range []struct{ namespace, policy, finalizer, want string }{
		{"", "a/b/c", "", "--policy=a/b/c: write NAME for a ClusterGCPolicy, or NAMESPACE/NAME for a GCPolicy"},
		{"", "a/", "", "--policy=a/: write NAME for a ClusterGCPolicy, or NAMESPACE/NAME for a GCPolicy"},
		{"", "", "/b", "--finalizer=/b: write NAME for a ClusterFinalizer, or NAMESPACE/NAME for a Finalizer"},
		{"other", "shop/keep", "", "--policy=shop/keep: a GCPolicy of namespace shop decides nothing in namespace other: omit -n"},
		{"", "a", "b", "--policy and --finalizer: use one of them, or run the command twice"},
	} {
		f := flagsOf(c.namespace, c.policy, c.finalizer)
		_, err := f.scope()
		usage := exit.Error{}
		if err == nil || err.Error() != c.want || !errors.As(err, &usage) || usage.Code != exit.CodeUsage {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
