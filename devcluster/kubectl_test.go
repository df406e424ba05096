package devcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestKubectlOfThePathIsUsedWithinOneMinorVersion(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs shell scripts")
	}
	for name, c := range map[string]struct{ says, err string }{
		"same version":      {`{"clientVersion": {"gitVersion": "v1.37.2"}}`, ""},
		"one older":         {`{"clientVersion": {"gitVersion": "v1.36.0"}}`, ""},
		"one newer, vendor": {`{"clientVersion": {"gitVersion": "v1.38.1-gke.5+abc"}}`, ""},
		"two older":         {`{"clientVersion": {"gitVersion": "v1.35.9"}}`, "is v1.35.9, which does not support an API server of v1.37.2"},
		"two newer":         {`{"clientVersion": {"gitVersion": "v1.39.0"}}`, "is v1.39.0, which does not support"},
		"no version":        {`{"clientVersion": {}}`, `"" is no version of Kubernetes`},
		"no number":         {`{"clientVersion": {"gitVersion": "v1.x.0"}}`, `"v1.x.0" is no version of Kubernetes`},
		"major version":     {`{"clientVersion": {"gitVersion": "v2.37.2"}}`, `"v2.37.2" is no version of Kubernetes`},
		"no JSON":           {`Client Version: v1.37.2`, "read version of"},
	} {
		t.Run(name, func(t *testing.T) {
			want := fakeKubectl(t, fmt.Sprintf("cat <<'EOF'\n%s\nEOF\n", c.says))
			got, err := findKubectl(t.Context(), "v1.37.2")
			if c.err == "" && (err != nil || got != want) {
				t.Errorf("got %q, %v", got, err)
			}
			if c.err != "" && (got != "" || err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got %q, %v, want %q", got, err, c.err)
			}
		})
	}
}

func TestFindKubectl_TimesOut(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs shell scripts")
	}
	fakeKubectl(t, "sleep 60\nexit 0\n") // a child of the script holds the pipe
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if got, err := findKubectl(ctx, "v1.37.2"); got != "" || err == nil || time.Since(began) > 20*time.Second {
		t.Errorf("got %q, %v after %s", got, err, time.Since(began))
	}
}

func TestFindKubectl_RejectsFailing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs shell scripts")
	}
	fakeKubectl(t, "exit 3\n")
	if got, err := findKubectl(t.Context(), "v1.37.2"); got != "" || err == nil {
		t.Errorf("one that fails: got %q, %v", got, err)
	}
	t.Setenv("PATH", t.TempDir())
	if got, err := findKubectl(t.Context(), "v1.37.2"); got != "" || err == nil {
		t.Errorf("none: got %q, %v", got, err)
	}
}

func TestKubectl_UsesOption(t *testing.T) {
	given := fakeKubectl(t, "")
	bin, err := (&Options{Kubectl: given}).build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if bin.Kubectl != given || filepath.Base(bin.ControllerManager) != executable(ControllerManager) {
		t.Errorf("got %+v", bin)
	}
}

// fakeKubectl puts a script before everything else on the PATH.
func fakeKubectl(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, kubectlName)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return path
}
