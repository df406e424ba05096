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

func TestWhatEveryStartHasIsNoErrorInTheLog(t *testing.T) {
	configurations := schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}
	missing := apierrors.NewNotFound(configurations, "gleaner-veto")
	conflict := fmt.Errorf("update: %w", apierrors.NewConflict(configurations, "gleaner-veto", errors.New("modified")))
	for claim, c := range map[string]struct {
		logger string
		err    error
		text   string
		isTold bool
	}{
		"no configuration yet":                       {rotatorName, missing, "Webhook not found. Unable to update certificate.", false},
		"somebody else wrote first":                  {rotatorName, conflict, "Error updating webhook with certificate", false},
		"a Secret that is still empty":               {rotatorName, errors.New("missing ca.crt"), stillEmpty, false},
		"a Secret that may not be read":              {rotatorName, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "gleaner-webhook", nil), "error rotating certs", true},
		"a failure of another kind":                  {rotatorName, errors.New("no entropy"), "could not refresh CA and server certs", true},
		"the same of somebody else than the library": {"collector", missing, "Could not read", true},
	} {
		t.Run(claim, func(t *testing.T) {
			for verbosity := range 2 {
				var lines []string
				log := Quiet(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{Verbosity: verbosity}))
				log.WithName("outer").WithName(c.logger).WithValues("a", "b").Error(c.err, c.text, "c", "d")
				if want := c.isTold || verbosity == 1; len(lines) != map[bool]int{true: 1}[want] {
					t.Fatalf("at verbosity %d it says %q", verbosity, lines)
				}
				if len(lines) == 1 && (strings.Contains(lines[0], `"level"=1`) == c.isTold || !strings.Contains(lines[0], `"error"=`) || !strings.Contains(lines[0], `"c"="d"`)) {
					t.Errorf("at verbosity %d it says %s", verbosity, lines[0])
				}
			}
		})
	}
}

func TestTheLineThatLoggedIsNamed(t *testing.T) {
	var lines []string
	say := func(_, line string) { lines = append(lines, line) }
	log := funcr.New(say, funcr.Options{LogCaller: funcr.All})
	for _, l := range []logr.Logger{log, Quiet(log)} {
		l.Error(errors.New("e"), "text")
	}
	if diff := cmp.Diff(lines[0], lines[1]); diff != "" {
		t.Errorf("without and with:\n%s", diff)
	}
}

func TestTheFolderGoesAsSoonAsItsFileHasBeenSeen(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := &Certificates{options: Options{Log: logr.Discard()}, folder: folder, seen: make(chan struct{})}
		go c.tidy(t.Context())
		if err := c.show([]byte("certificate")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := os.Stat(folder + "/" + certKey); err != nil {
			t.Errorf("it went before: %v", err)
		}
		close(c.seen)
		synctest.Wait()
		if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is still there: %v", err)
		}
		if err := c.show([]byte("renewed")); err != nil {
			t.Errorf("a renewed certificate is no good without a folder: %v", err)
		}
	})
}

func TestALoggerThatTellsNothingCanBeQuietedToo(t *testing.T) {
	Quiet(logr.Discard()).WithName(rotatorName).Error(errors.New("nobody hears of it"), "Nothing")
	Quiet(logr.Logger{}).WithName(rotatorName).Info("Nothing")
}
