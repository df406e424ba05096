package main

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// execute runs the command line in this process.
func execute(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, log bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetErr(&log)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// refused makes sure that the command line was told to make no sense, which
// is exit code 2, in words that hold all of these.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.As(err, &usageError{}) {
		t.Fatalf("the error is %v, want one about usage", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func TestDefaults_AreThoseThatAreDocumented(t *testing.T) {
	want := options{
		collector:         "primary",
		workers:           20,
		discoveryInterval: 30 * time.Second,
		sweepInterval:     5 * time.Minute,
		ignoreResources:   []string{"events", "events.events.k8s.io"},
		canaryTimeout:     10 * time.Second,
		apiQPS:            0,
		leaderElect:       true,
		metricsAddress:    ":8443",
		probeAddress:      ":8081",
		pprofAddress:      "0",
		records:           10000,
		transcripts:       "32Mi",
		logFormat:         "json",
		besideOptions: besideOptions{
			webhookAddress: ":9443",
			webhookService: "gleaner-webhook",
		},
		moduleOptions: moduleOptions{
			tenantModules:           true,
			maxModules:              500,
			maxModulesPerNamespace:  20,
			maxModulesSize:          "512Mi",
			maxModulesNamespaceSize: "32Mi",
		},
		sandboxOptions: sandboxOptions{sandboxWorkers: 2, sandboxMemory: "192Mi", compileTimeout: 30 * time.Second},
	}
	got := defaultOptions()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{}, besideOptions{}, moduleOptions{}, sandboxOptions{})); diff != "" {
		t.Error(diff)
	}
	if err := got.validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

func TestWrongValue_IsRefusedWithWhatToWriteInstead(t *testing.T) {
	for _, tc := range []struct{ flag, instead string }{
		{"--collector=secondary", "use --collector=primary"},
		{"--collector=", "use --collector=primary"},
		{"--workers=0", "use a number from 1 to 1000"},
		{"--workers=-1", "use a number from 1 to 1000"},
		{"--workers=1001", "use a number from 1 to 1000"},
		{"--discovery-interval=0s", "use 1s or more"},
		{"--discovery-interval=-30s", "use 1s or more"},
		{"--sweep-interval=999ms", "use 1s or more"},
		{"--records=0", "use a number from 1 to 1000000"},
		{"--records=1000001", "use a number from 1 to 1000000"},
		{"--transcripts=-1", "use a quantity below 2Gi, as in 32Mi, or 0 for none"},
		{"--transcripts=much", "use a quantity below 2Gi"},
		{"--transcripts=1Ti", "use a quantity below 2Gi"},
		{"--max-modules=-1", "use 0 for no limit"},
		{"--max-modules-per-namespace=-1", "use 0 for no limit"},
		{"--max-modules-size=much", "use a quantity, as in 32Mi"},
		{"--max-modules-size-per-namespace=-1", "use a quantity, as in 32Mi"},
		{"--canary-timeout=-1s", "use 0 for no canary, or 1s or more"},
		{"--canary-timeout=500ms", "use 1s or more, or 0 for no canary"},
		{"--api-qps=-1", "use 0 for no limit, or a number above it"},
		{"--api-qps=NaN", "use 0 for no limit, or a number above it"},
		{"--log-format=xml", "use json or text"},
		{"--verbosity=-1", "use a number from 0 to 10"},
		{"--verbosity=200", "use a number from 0 to 10"}, // it would not fit a level, and silence the log
		{"--ignore-resources=Pods", "write its plural name and group, as in events or events.events.k8s.io"},
		{"--ignore-resources=pods/status", "write its plural name and group"},
		{"--ignore-resources=apps/v1", "write its plural name and group"},
		{"--ignore-resources=events, pods", "write its plural name and group"},
		{"--metrics-bind-address=8443", "use host:port, :port, or 0 for none"},
		{"--metrics-bind-address=", "use host:port, :port, or 0 for none"},
		{"--metrics-bind-address=127.0.0.1", "use host:port, :port, or 0 for none"},
		{"--metrics-bind-address=:nowhere", "use host:port, :port, or 0 for none"},
		{"--metrics-bind-address=:65536", "use host:port, :port, or 0 for none"},
		{"--pprof-bind-address=:6060", "use a loopback address"},
		{"--pprof-bind-address=127.0.0.1", "use a loopback address"},
		{"--health-probe-bind-address=8081", "use host:port, :port, or 0 for none"},
		{"--health-probe-bind-address=::1:8081", "use host:port, :port, or 0 for none"},
	} {
		t.Run(tc.flag, func(t *testing.T) {
			_, err := execute(t, "run", tc.flag)
			name, _, _ := strings.Cut(tc.flag, "=")
			refused(t, err, name, tc.instead)
		})
	}
}

func TestCompanion_WantsToBeReached(t *testing.T) {
	for flag, instead := range map[string]string{
		"--webhook-bind-address=0":                   "use host:port or :port",
		"--webhook-service=":                         "name the Service in front of the webhook",
		"--webhook-url=https://127.0.0.1:9443/veto":  "with a host name",
		"--webhook-url=http://localhost:9443/veto":   "use https://host:port/veto",
		"--webhook-url=https://localhost:9443/hooks": "use https://host:port/veto",
	} {
		t.Run(flag, func(t *testing.T) {
			_, err := execute(t, "run", "--collector=companion", flag)
			name, _, _ := strings.Cut(flag, "=")
			refused(t, err, name, instead)
		})
	}
	for _, url := range []string{"", "https://localhost:9443/veto"} {
		o := defaultOptions()
		o.collector, o.webhookURL = companion, url
		if err := o.validate(); err != nil {
			t.Errorf("--webhook-url=%s is refused: %v", url, err)
		}
	}
}

func TestWrongValues_AreToldAllAtOnce(t *testing.T) {
	_, err := execute(t, "run", "--collector=x", "--workers=0", "--discovery-interval=0", "--sweep-interval=0", "--canary-timeout=-1s",
		"--api-qps=-1", "--log-format=x", "--metrics-bind-address=x", "--health-probe-bind-address=x", "--ignore-resources=X,Y")
	refused(t, err, "--collector=x", "--workers=0", "--discovery-interval=0s", "--sweep-interval=0s", "--canary-timeout=-1s",
		"--api-qps=-1", "--log-format=x", "--metrics-bind-address=x", "--health-probe-bind-address=x", `"X"`, `"Y"`)
}

func TestInsecureDebug_IsForLoopbackOnly(t *testing.T) {
	for address, fine := range map[string]bool{
		"127.0.0.1:8080": true, "127.8.9.10:0": true, "localhost:8080": true, "[::1]:8080": true, "0": true,
		":8443": false, "0.0.0.0:8080": false, "[::]:8080": false, "10.0.0.1:8080": false, "localhost.example.com:8080": false,
	} {
		t.Run(address, func(t *testing.T) {
			o := defaultOptions()
			o.insecureDebug, o.metricsAddress = true, address
			err := o.validate()
			switch {
			case fine && err != nil:
				t.Errorf("refused: %v", err)
			case !fine && err == nil:
				t.Error("everybody who reaches it is shown every object's name")
			case !fine && !strings.Contains(err.Error(), "use --metrics-bind-address=127.0.0.1:8080, or leave --insecure-debug out"):
				t.Errorf("the error does not say what to write instead: %v", err)
			}
		})
	}
}

func TestGoodValue_IsTaken(t *testing.T) {
	for name, change := range map[string]func(*options){
		"nothing is ignored":          func(o *options) { o.ignoreResources = nil },
		"a group with dashes":         func(o *options) { o.ignoreResources = []string{"things.my-group.example.com"} },
		"no canary":                   func(o *options) { o.canaryTimeout = 0 },
		"less than one call a second": func(o *options) { o.apiQPS = 0.5 },
		"nothing is served":           func(o *options) { o.metricsAddress, o.probeAddress = "0", "0" },
		"one worker":                  func(o *options) { o.workers = 1 },
		"any port":                    func(o *options) { o.metricsAddress = "127.0.0.1:0" },
		"a text log, a wordy one":     func(o *options) { o.logFormat, o.verbosity = "text", 5 },
	} {
		t.Run(name, func(t *testing.T) {
			o := defaultOptions()
			change(&o)
			if err := o.validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCommandLine_ThatMakesNoSenseIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		args  []string
		words []string
	}{
		"an unknown flag":          {[]string{"run", "--enable-garbage-collector"}, []string{"--enable-garbage-collector", "see gleaner run --help"}},
		"a flag that is no number": {[]string{"run", "--workers=many"}, []string{"--workers", "see gleaner run --help"}},
		"a duration without unit":  {[]string{"run", "--canary-timeout=10"}, []string{"--canary-timeout", "see gleaner run --help"}},
		"an argument":              {[]string{"run", "now"}, []string{"gleaner run", `"now"`, "see gleaner run --help"}},
		"an unknown command":       {[]string{"rnu"}, []string{`"rnu"`, "see gleaner --help"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t, tc.args...)
			refused(t, err, tc.words...)
		})
	}
}

func TestVersion_IsPrinted(t *testing.T) {
	for _, line := range []string{"version", "--version"} {
		if out, err := execute(t, line); err != nil || out != version+"\n" {
			t.Errorf("%s printed %q, %v", line, out, err)
		}
	}
	for _, format := range []string{"json", "yaml"} {
		out, err := execute(t, "version", "-o", format)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		if err := yaml.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err, out)
		}
		if got["gleanerVersion"] != version || got["goVersion"] != runtime.Version() || got["platform"] != runtime.GOOS+"/"+runtime.GOARCH || got["kind"] != "Version" {
			t.Errorf("-o %s printed %v", format, got)
		}
	}
	for _, wrong := range []string{"xml", ""} {
		_, err := execute(t, "version", "-o", wrong)
		refused(t, err, "use json or yaml")
	}
}

func TestCommand_ThatThereIsNotIsAnsweredWithWhatMayBeMeant(t *testing.T) {
	for line, want := range map[string]string{
		"explian":            `gleaner: there is no command "explian": did you mean explain? see gleaner --help`,
		"frobnicate":         `gleaner: there is no command "frobnicate": see gleaner --help`,
		"preview deploy/web": `gleaner: there is no command "deploy/web": see gleaner preview --help`,
		"module biuld":       `gleaner: there is no command "biuld": did you mean build? see gleaner module --help`,
		"help frobnicate":    `gleaner: there is no command "frobnicate": see gleaner --help`,
		"help preview delte": `gleaner: there is no command "delte": did you mean delete? see gleaner preview --help`,
	} {
		t.Run(line, func(t *testing.T) {
			if got, code := piped(t, strings.Fields(line)); got != want+"\n" || code != exitUsage {
				t.Errorf("it ends with %d and %q, want %d and %q", code, got, exitUsage, want)
			}
		})
	}
}
