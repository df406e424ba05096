// Package devtest gives tests a real control plane: one per test package,
// started when the first test asks for it.
//
//	func TestMain(m *testing.M) { devtest.Run(m, devcluster.Options{}) }
//
//	func TestPodsAreStored(t *testing.T) {
//		cfg := devtest.Shared(t).RESTConfig()
//		namespace := devtest.Namespace(t, cfg)
//		...
//	}
//
// A test that stops components or changes what others see starts a cluster of
// its own with devcluster.Start.
package devtest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/freeport"
)

const (
	cleanupTimeout = 10 * time.Second
	maxNamePart    = 40 // of a test's name in a namespace's, which may have 63 characters

	// The interval of Eventually is this part of the time that has passed, between min and max.
	eventuallyMin, eventuallyMax = 25 * time.Millisecond, 250 * time.Millisecond
	eventuallyPart               = 16
)

// shared is the cluster of this test binary.
var shared struct {
	once    sync.Once
	running bool // inside Run
	opts    devcluster.Options
	cluster *devcluster.Cluster
	err     error
}

// The directory of kubectl's caches, also read by commands that use k8s.io/cli-runtime.
const kubectlCacheVariable = "KUBECACHEDIR"

// Run is the body of TestMain: it runs the tests, stops the shared cluster if
// there was one, calls cleanUps, and exits.
//
// Commands started by the tests cache discovery in a directory that Run removes: the default is
// shared by all processes of this user, which are given the same ports one after another.
func Run(m *testing.M, opts devcluster.Options, cleanUps ...func() error) {
	shared.running = true
	shared.opts = opts
	cache, err := os.MkdirTemp("", "gleaner-kubectl-cache-")
	if err == nil {
		err = os.Setenv(kubectlCacheVariable, cache)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "devtest:", err)
		os.Exit(1)
	}
	cleanUps = append(cleanUps, func() error { return os.RemoveAll(cache) })
	code := m.Run()
	stopShared := func() error {
		if shared.cluster == nil {
			return nil
		}
		return shared.cluster.Stop()
	}
	for _, cleanUp := range append([]func() error{stopShared}, cleanUps...) {
		if err := cleanUp(); err != nil {
			fmt.Fprintln(os.Stderr, "devtest: clean up:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// Shared returns the cluster of this test binary, with the options given to Run.
// The first caller waits for its start. Tests must not stop its components.
func Shared(t testing.TB) *devcluster.Cluster {
	t.Helper()
	if !shared.running {
		t.Fatal("devtest.Shared needs devtest.Run in TestMain, which stops the cluster")
	}
	shared.once.Do(func() {
		// The first build takes minutes and should not look like a test that hangs.
		if _, shared.err = devcluster.Build(t.Context(), os.Stderr); shared.err == nil {
			shared.cluster, shared.err = devcluster.Start(t.Context(), forTests(shared.opts))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// forTests has each component use one processor, unless the options say otherwise: there are many
// components at the same time, and each takes a sixth less processor time then.
func forTests(o devcluster.Options) devcluster.Options {
	o.Processors = cmp.Or(o.Processors, 1)
	return o
}

// Start starts a control plane of the test's own, which ends with the test.
func Start(t testing.TB, opts devcluster.Options) *devcluster.Cluster {
	t.Helper()
	// The first build takes minutes and should not look like a test that hangs.
	if _, err := devcluster.Build(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	cluster, err := devcluster.Start(t.Context(), forTests(opts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// Namespace makes a namespace that is new and named for the test. When the test ends, a namespace of the shared cluster is
// erased with all objects in it, and no finalizer keeps one. In another cluster, which may have a node with containers, it is
// deleted, without waiting.
func Namespace(t testing.TB, cfg *rest.Config) string {
	t.Helper()
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: label(t.Name()) + "-"}}
	namespace, err = core.Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTimeout)
		defer cancel()
		var err error
		if shared.cluster != nil && shared.cluster.RESTConfig().Host == cfg.Host {
			err = shared.cluster.EraseNamespace(ctx, namespace.Name)
		} else {
			err = core.Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Logf("remove namespace: %v", err) // the cluster may be gone already
		}
	})
	return namespace.Name
}

// FreeAddress returns a loopback address, as HOST:PORT, on which nothing listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// label makes the beginning of a DNS label out of any text.
func label(text string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '-'
		}
	}, text)
	return "t-" + strings.Trim(clean[:min(len(clean), maxNamePart)], "-")
}

// Eventually asks until the answer is nil, and fails the test with the last error after the
// timeout. The interval grows with the time that has passed, from 25 ms to 250 ms: frequent
// requests would slow down what is waited for.
func Eventually(t testing.TB, timeout time.Duration, ask func() error) {
	t.Helper()
	begin := time.Now()
	pause := func() time.Duration {
		return min(max(eventuallyMin, time.Since(begin)/eventuallyPart), eventuallyMax)
	}
	if err := retry(context.Background(), timeout, pause, ask); err != nil {
		t.Fatalf("not within %s: %v", timeout, err)
	}
}

// Retry asks until the answer is nil, and returns the last error when time is up or the
// context ends.
func Retry(ctx context.Context, timeout, interval time.Duration, ask func() error) error {
	return retry(ctx, timeout, func() time.Duration { return interval }, ask)
}

func retry(ctx context.Context, timeout time.Duration, pause func() time.Duration, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(pause())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}
