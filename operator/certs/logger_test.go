package certs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestQuietLogger_DemotesExpectedErrors(t *testing.T) {
	configurations := schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}
	missing := apierrors.NewNotFound(configurations, "gleaner-veto")
	conflict := fmt.Errorf("update: %w", apierrors.NewConflict(configurations, "gleaner-veto", errors.New("modified")))
	for claim, c := range map[string]struct {
		logger   string
		err      error
		text     string
		isLogged bool
	}{
		"no configuration yet":             {rotatorName, missing, "Webhook not found. Unable to update certificate.", false},
		"a concurrent write":               {rotatorName, conflict, "Error updating webhook with certificate", false},
		"a Secret that is still empty":     {rotatorName, errors.New("missing ca.crt"), malformedSecret, false},
		"a Secret that may not be read":    {rotatorName, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "gleaner-webhook", nil), "error rotating certs", true},
		"another failure":                  {rotatorName, errors.New("no entropy"), "could not refresh CA and server certs", true},
		"the same error of another logger": {"collector", missing, "Could not read", true},
	} {
		t.Run(claim, func(t *testing.T) {
			for verbosity := range 2 {
				var lines []string
				log := QuietLogger(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{Verbosity: verbosity}))
				log.WithName("outer").WithName(c.logger).WithValues("a", "b").Error(c.err, c.text, "c", "d")
				if want := c.isLogged || verbosity == 1; len(lines) != map[bool]int{true: 1}[want] {
					t.Fatalf("verbosity %d: %q", verbosity, lines)
				}
				if len(lines) == 1 && (strings.Contains(lines[0], `"level"=1`) == c.isLogged || !strings.Contains(lines[0], `"error"=`) || !strings.Contains(lines[0], `"c"="d"`)) {
					t.Errorf("verbosity %d: %s", verbosity, lines[0])
				}
			}
		})
	}
}

func TestQuietLogger_KeepsTheCaller(t *testing.T) {
	var lines []string
	write := func(_, line string) { lines = append(lines, line) }
	log := funcr.New(write, funcr.Options{LogCaller: funcr.All})
	for _, l := range []logr.Logger{log, QuietLogger(log)} {
		l.Error(errors.New("e"), "text")
	}
	if diff := cmp.Diff(lines[0], lines[1]); diff != "" {
		t.Errorf("without and with:\n%s", diff)
	}
}

func TestRemoveDir_AfterTheFileWasRead(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := &Certificates{options: Options{Log: logr.Discard()}, dir: folder, rotatorReady: make(chan struct{})}
		go c.removeDir(t.Context())
		if err := c.writeFile([]byte("certificate")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := os.Stat(folder + "/" + certKey); err != nil {
			t.Errorf("removed too early: %v", err)
		}
		close(c.rotatorReady)
		synctest.Wait()
		if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is still there: %v", err)
		}
		if err := c.writeFile([]byte("renewed")); err != nil {
			t.Errorf("a renewed certificate is rejected without the directory: %v", err)
		}
	})
}

func TestQuietLogger_AcceptsDiscard(t *testing.T) {
	QuietLogger(logr.Discard()).WithName(rotatorName).Error(errors.New("not logged"), "Nothing")
	QuietLogger(logr.Logger{}).WithName(rotatorName).Info("Nothing")
}
