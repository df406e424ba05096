package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/internal/cli/modes"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
	"github.com/gleaner-dev/gleaner/internal/cli/serving"
)

func TestDefaults_AreAsDocumented(t *testing.T) {
	want := options{
		collector:         "primary",
		workers:           20,
		discoveryInterval: 30 * time.Second,
		sweepInterval:     5 * time.Minute,
		ignoreResources:   []string{"events", "events.events.k8s.io"},
		canaryTimeout:     10 * time.Second,
		observeTimeout:    10 * time.Second,
		apiQPS:            0,
		leaderElect:       true,
		metricsAddress:    ":8443",
		probeAddress:      ":8081",
		pprofAddress:      "0",
		records:           10000,
		transcripts:       "32Mi",
		logFormat:         "json",
		companionOptions: companionOptions{
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
		archiveOptions: archiveOptions{archiveMaxSize: "10Gi", recordTTL: 168 * time.Hour},
		sandboxOptions: sandboxOptions{sandboxWorkers: 2, sandboxMemory: "192Mi", compileTimeout: 30 * time.Second},
	}
	got := defaultOptions()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{}, companionOptions{}, moduleOptions{}, signatureOptions{}, sandboxOptions{}, archiveOptions{})); diff != "" {
		t.Error(diff)
	}
	if err := got.validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

func TestInsecureDebug_RequiresLoopback(t *testing.T) {
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

func TestFlags_ValidValuesAreAccepted(t *testing.T) {
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

func TestLogLines_CannotBeForged(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		o := defaultOptions()
		o.logFormat = format
		log := serving.Logger(printer.Guard(&out), o.logFormat, o.verbosity)
		log.Info("Something was decided", "object", printertest.Hostile, "names", []string{printertest.Hostile})
		log.Error(errors.New(printertest.Hostile), "Something went wrong", "object", printertest.Hostile)
		lines := strings.Count(out.String(), "\n")
		if format == "json" {
			for line := range strings.Lines(out.String()) {
				var entry map[string]any
				if err := json.Unmarshal([]byte(line), &entry); err != nil || entry["object"] != printertest.Hostile {
					t.Errorf("%s: %v", line, err)
				}
			}
		}
		if lines != 2 || strings.Contains(out.String(), "\nFORGED") {
			t.Errorf("%s: %d lines, want 2:\n%s", format, lines, out.String())
		}
		printertest.CheckHarmless(t, format, strings.ReplaceAll(out.String(), "\t", " "))
	}
}

func TestCompanion_ValidWebhookURLs(t *testing.T) {
	for _, url := range []string{"", "https://localhost:9443/veto"} {
		o := defaultOptions()
		o.collector, o.webhookURL = modes.Companion, url
		if err := o.validate(); err != nil {
			t.Errorf("--webhook-url=%s is refused: %v", url, err)
		}
	}
}
