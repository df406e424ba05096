package modules

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// The answer to a status that is written has the spec of that moment, which may be a later
// one than is in force: as that it must not be taken, nor its generation be told as observed.
func TestAStatusThatIsWrittenTellsOfTheSpecThatIsInForce(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	read := &v1alpha1.GCPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "u", Generation: 1}, Spec: keeping(nil, configMaps()...)}
	changed := read.DeepCopy()
	changed.Generation, changed.Spec.Mode = 2, v1alpha1.ModeMonitor
	k := keeper(t, nil)
	k.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(changed).WithObjects(changed).Build()

	spec := read.Spec.DeepCopy()
	for _, held := range []int64{1, 2} {
		k.write(t.Context(), read, "GCPolicy", &read.Status.Conditions, func() {
			read.Status.ObservedGeneration, read.Status.Held = read.GetGeneration(), held
		})
	}
	if diff := cmp.Diff(*spec, read.Spec); diff != "" || read.Generation != 1 {
		t.Errorf("what is in force is taken to be generation %d (-want +got):\n%s", read.Generation, diff)
	}
	live := &v1alpha1.GCPolicy{}
	if err := k.client.Get(t.Context(), client.ObjectKeyFromObject(read), live); err != nil {
		t.Fatal(err)
	}
	if live.Status.ObservedGeneration != 1 || live.Status.Held != 2 || live.Spec.Mode != v1alpha1.ModeMonitor {
		t.Errorf("written: %+v", live.Status)
	}
}
