package deploy

import (
	"path/filepath"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// component is one of config/components with an admission policy for authors. The first author adds it to the shared installation.
type component struct {
	name     string
	cluster  schema.GroupVersionResource // its cluster-scoped policies
	refused  string                      // the spec of one that an author without permissions may not create, with this refusal
	refusal  string
	accepted string // the spec of one that an administrator may create

	once sync.Once
	err  error
}

// author returns an author of policies of the component, once the API server checks them.
func (c *component) author(t *testing.T, resource schema.GroupVersionResource) *author {
	t.Helper()
	cluster := sharedInstallation(t)
	c.once.Do(func() {
		folder := t.TempDir()
		copyManifests(t, folder)
		writeFile(t, filepath.Join(folder, "kustomization.yaml"), []byte("components: [gleaner/config/components/"+c.name+"]\n"), 0o600)
		if _, c.err = cluster.Kubectl(t.Context(), "apply", "-k", folder); c.err != nil {
			return
		}
		unauthorized := plainAuthor(newEnv(t, cluster.RESTConfig()), cluster.RESTConfig(), c.cluster)
		unauthorized.waitForRefused(c.refusal, func() error { return unauthorized.dryRunCreate(c.refused) })
		devtest.Eventually(t, timeout, func() error {
			_, err := unauthorized.policies(cluster.RESTConfig()).Create(t.Context(), unauthorized.policy(c.accepted), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
	})
	if c.err != nil {
		t.Fatal(c.err)
	}
	return plainAuthor(newEnv(t, cluster.RESTConfig()), cluster.RESTConfig(), resource)
}
