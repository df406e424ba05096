package ui

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestFlags_WrongOnesSayWhatToWrite(t *testing.T) {
	for line, want := range map[string]string{
		"--port=70000":                                   "use a port from 1 to 65535",
		"--address=0.0.0.0":                              "require --login",
		"--host=example.com":                             "require --login",
		"--login":                                        "--login requires --port",
		"--login --port=1 -f x":                          "files have no users",
		"--login --port=1 --address=example.com":         "use an IP address",
		"--login --port=1 --tls-cert-file=tls.crt":       "use both, or neither",
		"--output=json":                                  "unknown flag",
		"--login --port=1 --archive=file:///x":           "a store does not know who may see what",
		"--login --port=1 --endpoint=http://127.0.0.1:1": "requires an --endpoint with https://",
		"--login --port=1 --identity=key.txt":            "every user would read what is encrypted",
		"-A -n shop":                                     "use one of them",
		"--endpoint=http://a.example":                    "unencrypted",
		"deployment/web":                                 "ui does not take arguments",
	} {
		cmd := Command()
		cmd.SetArgs(strings.Fields(line))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SilenceUsage = true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// A kubelet names the address of the Pod, which is none of the names of the pages.
func TestServe_ProbesNeedNoName(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	pages := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	go func() { done <- serve(ctx, listener, pages, []string{"gleaner.example"}) }()
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/": http.StatusMisdirectedRequest} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listener.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "10.0.0.7:8443"
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
