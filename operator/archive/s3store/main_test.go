package s3store

import (
	"context"
	"os"
	"testing"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
)

const bucketVariable = "GLEANER_S3STORE_BUCKET" // for child processes

func TestMain(m *testing.M) {
	archivetest.Child(func(prefix string) (archive.Store, error) {
		return Open(context.Background(), os.Getenv(bucketVariable), prefix, Options{})
	})
	code := m.Run()
	if shared.dir != "" { // the server ends with this process
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}
