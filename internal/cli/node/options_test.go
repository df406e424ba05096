package node

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func valid() options {
	o := defaultOptions()
	o.node = "node1"
	return o
}

func TestOptions_DefaultsAreValid(t *testing.T) {
	o := valid()
	if err := o.validate(); err != nil {
		t.Error(err)
	}
}

func TestOptions_InvalidOnesSayWhatToWrite(t *testing.T) {
	for want, change := range map[string]func(*options){
		"set --node-name to the name of the Node that this runs on": func(o *options) { o.node = "" },
		"use unix:// and the path of a socket":                      func(o *options) { o.runtimeEndpoint = "/run/containerd/containerd.sock" },
		"use a duration from 1s to 1h":                              func(o *options) { o.runtimeTimeout = 0 },
		"use an absolute path":                                      func(o *options) { o.imageFilesystem = "containerd" },
		"use json or text":                                          func(o *options) { o.logFormat = "xml" },
		"use a number from 0 to 10":                                 func(o *options) { o.verbosity = 11 },
		"--metrics-bind-address=8443: use host:port":                func(o *options) { o.metricsAddress = "8443" },
		"--health-probe-bind-address=x: use host:port":              func(o *options) { o.probeAddress = "x" },
		"would show the metrics without authentication":             func(o *options) { o.insecureMetrics = true },
	} {
		o := valid()
		change(&o)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestCommand_NodeIsThatOfTheEnvironment(t *testing.T) {
	t.Setenv(nodeVariable, "node7")
	if o := defaultOptions(); o.node != "node7" || o.runtimeTimeout != 2*time.Minute {
		t.Errorf("options: %+v", o)
	}
}

func TestCommand_WithoutANode_IsRefused(t *testing.T) {
	t.Setenv(nodeVariable, "")
	cmd := Command("test")
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(nil)
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--node-name") {
		t.Errorf("got %v", err)
	}
}
