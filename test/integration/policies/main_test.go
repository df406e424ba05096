// Package policies runs the collector with policies and finalizers against a real control
// plane: alone, or with -companion in companion mode, with the built-in garbage collector
// running.
//
// The tests are the same in both modes, except those in companion_*_test.go, which need
// companion mode. With -mode-dependent, those of what works the same in both modes are omitted.
package policies

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

var (
	companionMode = flag.Bool("companion", false, "run the collector in companion mode with the built-in collector, instead of alone")
	modeDependent = flag.Bool("mode-dependent", false, "omit the tests of what works the same in both modes")
)

// modeIndependent are the files of the tests of what has nothing to do with the collector: how modules are loaded and what they may
// read and send, custom finalizers, the admission of owner references and deletions, and what retention removes. test/archive has an
// operator in each mode.
var modeIndependent = []string{
	"archive_test.go", "bulk_test.go", "enforcement_test.go", "finalize_test.go", "intents_test.go", "loading_test.go", "networks_test.go", "permissions_test.go", "protect_test.go", "protect_exempt_test.go",
	"retain_hook_test.go", "retention_test.go", "source_test.go",
}

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	flag.Parse()
	log := logr.Discard()
	if os.Getenv("GLEANER_TEST_LOG") != "" {
		log = zap.New(zap.UseDevMode(true))
	}
	ctrl.SetLogger(log)
	options := devcluster.Options{}
	if *companionMode {
		controllers = []string{"*"}
		options.ControllerManagerFlags = []string{"--authorization-always-allow-paths=" + builtInGraphPath}
	}
	if err := omitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	options.Controllers = controllers
	devtest.Run(m, options, stopReused)
}

// controllers are the controllers that the control planes run.
var controllers = devcluster.WithoutCollector()

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// omitTests omits the tests that need companion mode, or that the flags omit. If each skipped itself, every
// run would list them.
func omitTests() error {
	var files []string
	if !*companionMode {
		needCompanion, err := filepath.Glob("companion_*_test.go")
		if err != nil {
			return err
		}
		files = needCompanion
	}
	if *modeDependent {
		files = append(files, modeIndependent...)
	}
	if len(files) == 0 {
		return nil
	}
	skip := flag.Lookup("test.skip").Value.String()
	var patterns []string
	if skip != "" {
		patterns = append(patterns, skip)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range testFunction.FindAllSubmatch(text, -1) {
			patterns = append(patterns, "^"+string(m[1])+"$")
		}
	}
	return flag.Set("test.skip", strings.Join(patterns, "|"))
}

// shared is the collector that the tests share, created on first use.
var shared = struct {
	once      sync.Once
	collector *run.Operator
	reads     *requestCounter // GETs of the collector
	err       error
}{reads: newRequestCounter()}

// sharedCollector returns the shared collector, which runs until the process ends.
func sharedCollector(t *testing.T) *run.Operator {
	t.Helper()
	config := devtest.Shared(t).RESTConfig()
	shared.once.Do(func() {
		if shared.err = inprocess.CreateCRDs(t, config); shared.err == nil {
			config := operatorConfig(t)
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return countingTransport{shared.reads, http.MethodGet, next}
			})
			shared.collector, _, shared.err = runCollector(options(t, devtest.Shared(t), config))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.collector
}

// operatorConfig returns the identity of the collector. The operator recognizes its own
// writes by it.
func operatorConfig(t *testing.T) *rest.Config {
	t.Helper()
	config, err := inprocess.OperatorConfig(devtest.Shared(t))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

const collectorUser = "system:serviceaccount:kube-system:generic-garbage-collector"

// options returns the collector's options for the mode.
func options(t *testing.T, cluster *devcluster.Cluster, config *rest.Config) run.Options {
	o := inprocess.Options(config)
	var err error
	if o.Webhook, err = inprocess.Endpoint(cluster); err != nil {
		t.Fatal(err)
	}
	if *companionMode {
		o.Companion, o.Collector = true, companion.Collector{User: collectorUser}
		o.CanaryTimeout = 10 * time.Second
	}
	return o
}

func (o *dedicatedEnv) options() run.Options { return options(o.T, o.cluster, o.config) }

// runCollector runs a collector, and webhooks if it has any, until stop is called. Stop waits until they have ended.
func runCollector(o run.Options) (collector *run.Operator, stop func() error, err error) {
	if o.Webhook == nil {
		return inprocess.RunCollector(o)
	}
	return inprocess.RunCollector(o, inprocess.Webhooks(o.Webhook))
}
