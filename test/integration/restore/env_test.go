package restore

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	archivecli "github.com/gleaner-dev/gleaner/internal/cli/archive"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	cli "github.com/gleaner-dev/gleaner/internal/cli/restore"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/memory"
	"github.com/gleaner-dev/gleaner/operator/archive/serve"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/test/objects"
)

// env is a namespace with an archive of its own.
type env struct {
	*objects.Env
	cluster  *devcluster.Cluster
	archive  *memory.Archive
	endpoint string
}

func newEnv(t *testing.T) *env {
	t.Helper()
	cluster := devtest.Shared(t)
	e := &env{Env: objects.New(t, cluster.RESTConfig(), devtest.Namespace(t, cluster.RESTConfig())), cluster: cluster, archive: &memory.Archive{}}
	mux := http.NewServeMux()
	for path, handler := range serve.Handlers(serve.Source{Archive: e.archive, ReadAccess: func(r *http.Request) debug.ReadAccess { return debug.AllowAll(r) }}) {
		mux.Handle(path, handler)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	e.endpoint = server.URL
	return e
}

// store archives objects as they are now, in this order, and returns them.
func (e *env) store(cause archive.Cause, objects ...*unstructured.Unstructured) []*unstructured.Unstructured {
	e.Helper()
	return e.storeFor(nil, cause, objects...)
}

func (e *env) storeFor(recipients []age.Recipient, cause archive.Cause, objects ...*unstructured.Unstructured) []*unstructured.Unstructured {
	e.Helper()
	var stored []*unstructured.Unstructured
	for _, o := range objects {
		live := e.Read(o)
		if live == nil {
			e.Fatalf("%s %s does not exist", o.GetKind(), o.GetName())
		}
		e.archive.Add(e, live, time.Now(), cause, recipients...)
		stored = append(stored, live)
	}
	return stored
}

// run runs gleaner restore, or gleaner undo or archive if the first argument says so, and returns its
// output and exit code.
func (e *env) run(args ...string) (out string, code int) {
	e.Helper()
	var b bytes.Buffer
	return e.runTo(e.Context(), &b, args...)
}

func (e *env) runTo(ctx context.Context, b interface {
	Write([]byte) (int, error)
	String() string
}, args ...string) (out string, code int) {
	e.Helper()
	cmd, subcommand := cli.Command(), []string(nil)
	switch args[0] {
	case "undo":
		cmd, args = cli.UndoCommand(), args[1:]
	case "archive":
		cmd, subcommand, args = archivecli.Command(), args[1:2], args[2:]
	}
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(slices.Concat(subcommand, []string{"--kubeconfig=" + e.cluster.Kubeconfig(), "--endpoint=" + e.endpoint}, args)) // of two flags, the last one counts
	cmd.SetOut(b)
	cmd.SetErr(b)
	cmd.SetIn(strings.NewReader(""))
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return b.String(), 0
	}
	status := exit.Error{Code: exit.CodeFailure}
	errors.As(err, &status)
	return b.String() + err.Error() + "\n", status.Code
}

// restore runs gleaner restore, which has to succeed.
func (e *env) restore(args ...string) string {
	e.Helper()
	out, code := e.run(append(args, "--yes")...)
	if code != 0 {
		e.Fatalf("restore %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// cleanup returns a context for what is done after the test.
func (e *env) cleanup() context.Context { return context.WithoutCancel(e.Context()) }
