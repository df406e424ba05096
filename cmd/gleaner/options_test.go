package main

import (
	"bytes"
	"io"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/program"
)

// execute runs the command line in this process.
func execute(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, log bytes.Buffer
	cmd := rootCommand()
	cmd.SetOut(&out)
	cmd.SetErr(&log)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// exitCode returns the exit code of an error.
func exitCode(err error) int { return program.PrintError(io.Discard, "gleaner", err) }

// wantUsageError checks that the error is an invalid command line, which is exit code 2, and
// contains all words.
func wantUsageError(t *testing.T, err error, words ...string) {
	t.Helper()
	if exitCode(err) != exit.CodeUsage {
		t.Fatalf("the error is %v, want one about usage", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func TestFlags_InvalidValues_ErrorSaysWhatToUse(t *testing.T) {
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
		{"--transcripts=-1", "use a quantity below 2Gi, such as 32Mi, or 0 to keep none"},
		{"--transcripts=much", "use a quantity below 2Gi"},
		{"--transcripts=1Ti", "use a quantity below 2Gi"},
		{"--max-modules=-1", "use a positive number, or 0 for no limit"},
		{"--max-modules-per-namespace=-1", "use a positive number, or 0 for no limit"},
		{"--max-modules-size=much", "use a quantity such as 32Mi"},
		{"--max-modules-size-per-namespace=-1", "use a quantity such as 32Mi"},
		{"--canary-timeout=-1s", "use 1s or more, or 0 to disable the check"},
		{"--canary-timeout=500ms", "use 1s or more, or 0 to disable the check"},
		{"--observe-timeout=-1s", "use a duration up to 1h, or 0 to disable waiting"},
		{"--observe-timeout=2h", "use a duration up to 1h, or 0 to disable waiting"},
		{"--api-qps=-1", "use a positive number, or 0 for no limit"},
		{"--api-qps=NaN", "use a positive number, or 0 for no limit"},
		{"--log-format=xml", "use json or text"},
		{"--verbosity=-1", "use a number from 0 to 10"},
		{"--verbosity=200", "use a number from 0 to 10"}, // it would not fit a level, and silence the log
		{"--ignore-resources=Pods", "write its plural name and group, such as events or events.events.k8s.io"},
		{"--ignore-resources=pods/status", "write its plural name and group"},
		{"--ignore-resources=apps/v1", "write its plural name and group"},
		{"--ignore-resources=events, pods", "write its plural name and group"},
		{"--metrics-bind-address=8443", "use host:port, :port, or 0 to disable it"},
		{"--metrics-bind-address=", "use host:port, :port, or 0 to disable it"},
		{"--metrics-bind-address=127.0.0.1", "use host:port, :port, or 0 to disable it"},
		{"--metrics-bind-address=:nowhere", "use host:port, :port, or 0 to disable it"},
		{"--metrics-bind-address=:65536", "use host:port, :port, or 0 to disable it"},
		{"--pprof-bind-address=:6060", "use a loopback address"},
		{"--pprof-bind-address=127.0.0.1", "use a loopback address"},
		{"--health-probe-bind-address=8081", "use host:port, :port, or 0 to disable it"},
		{"--health-probe-bind-address=::1:8081", "use host:port, :port, or 0 to disable it"},
	} {
		t.Run(tc.flag, func(t *testing.T) {
			_, err := execute(t, "run", tc.flag)
			name, _, _ := strings.Cut(tc.flag, "=")
			wantUsageError(t, err, name, tc.instead)
		})
	}
}

func TestCompanion_RequiresReachableWebhook(t *testing.T) {
	for flag, instead := range map[string]string{
		"--webhook-bind-address=0":                   "use host:port or :port",
		"--webhook-service=":                         "name the Service of the webhook",
		"--webhook-url=https://127.0.0.1:9443/veto":  "with a host name",
		"--webhook-url=http://localhost:9443/veto":   "use https://host:port/veto",
		"--webhook-url=https://localhost:9443/hooks": "use https://host:port/veto",
	} {
		t.Run(flag, func(t *testing.T) {
			_, err := execute(t, "run", "--collector=companion", flag)
			name, _, _ := strings.Cut(flag, "=")
			wantUsageError(t, err, name, instead)
		})
	}
}

func TestFlags_AllInvalidValuesAreReported(t *testing.T) {
	_, err := execute(t, "run", "--collector=x", "--workers=0", "--discovery-interval=0", "--sweep-interval=0", "--canary-timeout=-1s",
		"--api-qps=-1", "--log-format=x", "--metrics-bind-address=x", "--health-probe-bind-address=x", "--ignore-resources=X,Y")
	wantUsageError(t, err, "--collector=x", "--workers=0", "--discovery-interval=0s", "--sweep-interval=0s", "--canary-timeout=-1s",
		"--api-qps=-1", "--log-format=x", "--metrics-bind-address=x", "--health-probe-bind-address=x", `"X"`, `"Y"`)
}

func TestCommandLine_Invalid_IsRejected(t *testing.T) {
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
			wantUsageError(t, err, tc.words...)
		})
	}
}

func TestVersion(t *testing.T) {
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
		wantUsageError(t, err, "use json or yaml")
	}
}

func TestCommand_Unknown_GetsSuggestions(t *testing.T) {
	for line, want := range map[string]string{
		"explian":            `gleaner: unknown command "explian": did you mean explain? see gleaner --help`,
		"frobnicate":         `gleaner: unknown command "frobnicate": see gleaner --help`,
		"preview deploy/web": `gleaner: unknown command "deploy/web": see gleaner preview --help`,
		"module biuld":       `gleaner: unknown command "biuld": did you mean build? see gleaner module --help`,
		"help frobnicate":    `gleaner: unknown command "frobnicate": see gleaner --help`,
		"help preview delte": `gleaner: unknown command "delte": did you mean delete? see gleaner preview --help`,
	} {
		t.Run(line, func(t *testing.T) {
			if got, code := piped(t, strings.Fields(line)); got != want+"\n" || code != exit.CodeUsage {
				t.Errorf("it ends with %d and %q, want %d and %q", code, got, exit.CodeUsage, want)
			}
		})
	}
}
