package run

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

func TestArchive_InAFolderIsOpenedByOneProcess(t *testing.T) {
	o := defaultArchiveOptions()
	o.archive = "file://" + t.TempDir()
	first, err := o.openArchive(t.Context(), logr.Discard())
	if err != nil || first.Opened == nil || first.Limits.MaxBytes != 10<<30 {
		t.Fatalf("%+v, %v", first, err)
	}
	defer func() { _ = first.Opened.Close() }()
	if _, err := o.openArchive(t.Context(), logr.Discard()); err == nil {
		t.Error("it was opened twice")
	}
	o.archive = "s3://bucket/prefix" // is opened by the leader
	if shared, err := o.openArchive(t.Context(), logr.Discard()); err != nil || shared.Opened != nil || shared.Open == nil {
		t.Errorf("%+v, %v", shared, err)
	}
	o.archive = ""
	if none, err := o.openArchive(t.Context(), logr.Discard()); err != nil || none != nil {
		t.Errorf("%+v, %v", none, err)
	}
}

func TestArchive_InAFolderIsForASingleReplica(t *testing.T) {
	of := func(kind string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: "pod", OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "gleaner", Controller: ptr.To(true)}}}
	}
	named := metav1.ObjectMeta{Namespace: "ns", Name: "gleaner"}
	for claim, c := range map[string]struct {
		objects []runtime.Object
		want    int32
	}{
		"a Deployment":                 {[]runtime.Object{&corev1.Pod{ObjectMeta: of("ReplicaSet")}, &appsv1.ReplicaSet{ObjectMeta: named, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](2)}}}, 2},
		"a StatefulSet":                {[]runtime.Object{&corev1.Pod{ObjectMeta: of("StatefulSet")}, &appsv1.StatefulSet{ObjectMeta: named, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3)}}}, 3},
		"a StatefulSet of one":         {[]runtime.Object{&corev1.Pod{ObjectMeta: of("StatefulSet")}, &appsv1.StatefulSet{ObjectMeta: named}}, 1},
		"a Pod without a controller":   {[]runtime.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}}}, 1},
		"no Pod of the host's name":    {nil, 1},
		"a controller of another kind": {[]runtime.Object{&corev1.Pod{ObjectMeta: of("DaemonSet")}}, 1},
	} {
		t.Run(claim, func(t *testing.T) {
			if got, err := replicasOf(t.Context(), fake.NewClientset(c.objects...), "ns", "pod"); err != nil || got != c.want {
				t.Errorf("got %d, %v, want %d", got, err, c.want)
			}
		})
	}
	for _, location := range []string{"", "s3://bucket/prefix", "file:///folder"} { // and this is no Pod
		o := defaultArchiveOptions()
		o.archive = location
		if err := o.checkReplicas(t.Context(), fake.NewClientset(), "ns"); err != nil {
			t.Errorf("%q: %v", location, err)
		}
	}
	if _, err := replicasOf(t.Context(), fake.NewClientset(&corev1.Pod{ObjectMeta: of("ReplicaSet")}), "ns", "pod"); err == nil {
		t.Error("a ReplicaSet that can't be read counts as one replica")
	}
}

func TestArchive_FlagsAreChecked(t *testing.T) {
	for claim, c := range map[string]struct {
		change func(*archiveOptions)
		want   string
	}{
		"no scheme":          {func(o *archiveOptions) { o.archive = "/var/lib/archive" }, "write file:///FOLDER"},
		"a relative folder":  {func(o *archiveOptions) { o.archive = "file://archive" }, "write file:///FOLDER"},
		"a negative size":    {func(o *archiveOptions) { o.archiveMaxSize = "-1" }, "use a quantity such as 10Gi"},
		"no size":            {func(o *archiveOptions) { o.archiveMaxSize = "much" }, "use a quantity such as 10Gi"},
		"too short a period": {func(o *archiveOptions) { o.recordTTL = 1 }, "use 1m or more"},
	} {
		o := defaultArchiveOptions()
		c.change(&o)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", claim, err)
		}
	}
	o := defaultArchiveOptions()
	if err := o.validate(); err != nil {
		t.Error(err)
	}
}
