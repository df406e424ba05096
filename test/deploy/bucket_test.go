package deploy

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/s3server"
)

// bucket starts an S3 server with a bucket, and returns a function that creates the Secret which docs/install.md says to create.
func bucket(t *testing.T, cluster *devcluster.Cluster) (run func()) {
	folder := t.TempDir()
	server, err := s3server.Start(t.Context(), folder, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	if response, err := server.Request(t.Context(), http.MethodPut, "/archive", ""); err != nil || response.Status >= 300 {
		t.Fatal(response, err)
	}
	authority := filepath.Join(folder, "ca.pem")
	writeFile(t, authority, server.CA, 0o600)
	return func() {
		kubectl(t, cluster, "-n", namespace, "create", "secret", "generic", "gleaner-archive",
			"--from-literal=ARCHIVE=s3://archive/gleaner", "--from-literal=AWS_REGION="+server.Region,
			"--from-literal=AWS_ACCESS_KEY_ID="+server.AccessKey, "--from-literal=AWS_SECRET_ACCESS_KEY="+server.SecretKey,
			"--from-literal=AWS_ENDPOINT_URL_S3="+server.URL, "--from-file=ca.crt="+authority, "--from-literal=AWS_CA_BUNDLE=/etc/gleaner-archive/ca.crt")
	}
}
