package v1alpha1_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

func TestArchiveFinalizer_NamesItsPolicy(t *testing.T) {
	long := strings.Repeat("n", v1alpha1.MaxArchivePolicyName)
	for _, policy := range [][2]string{{"", "data"}, {"shop", "data"}, {"archive", "a.b"}, {"cluster", "c"}, {long, long}, {"", long}} {
		entry := v1alpha1.ArchiveFinalizer(policy[0], policy[1])
		if wrong := validation.IsQualifiedName(entry); len(wrong) != 0 {
			t.Errorf("%s is no finalizer: %v", entry, wrong)
		}
		namespace, name, ok := v1alpha1.ParseArchiveFinalizer(entry)
		if !ok || namespace != policy[0] || name != policy[1] {
			t.Errorf("%s: got %q, %q, %t", entry, namespace, name, ok)
		}
	}
}

// The Finalizer "data" in namespace "archive" has the finalizer archive.gleaner.dev/data.
func TestArchiveFinalizer_IsNoneOfAnotherKind(t *testing.T) {
	for _, entry := range []string{
		"archive.gleaner.dev/data", "cluster.gleaner.dev/archive", "gleaner.dev/hold", "gleaner.dev/in-use", ".archive.gleaner.dev/data", "shop.archive.gleaner.dev/",
		"a.b.archive.gleaner.dev/data", "shop.archive.gleaner.dev.example.com/data", "archive.cluster.gleaner.dev", "foregroundDeletion", "",
	} {
		if namespace, name, ok := v1alpha1.ParseArchiveFinalizer(entry); ok {
			t.Errorf("%q: got %q, %q", entry, namespace, name)
		}
	}
}
