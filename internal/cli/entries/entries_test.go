package entries

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/filestore"
)

func parse(t *testing.T, args ...string) *Flags {
	t.Helper()
	f := &Flags{}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddTo(flags, true)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParseSince_DurationsAndTimes(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"10m": now.Add(-10 * time.Minute), "24h": now.Add(-24 * time.Hour), "2026-01-01T00:00:00Z": time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		if got, err := ParseSince(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0s", "-10m", "yesterday", "10"} {
		if got, err := ParseSince(text, now); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

func TestLocation_FromFlagOrEnvironment(t *testing.T) {
	t.Setenv(LocationVariable, "s3://from-environment")
	if got := parse(t).Location(); got != "s3://from-environment" {
		t.Errorf("got %s", got)
	}
	if got := parse(t, "--archive=file:///a").Location(); got != "file:///a" {
		t.Errorf("got %s", got)
	}
	var status exit.Error
	if err := parse(t, "--archive=nowhere").Validate(); !errors.As(err, &status) || status.Code != exit.CodeUsage {
		t.Errorf("an invalid location: %v", err)
	}
}

func TestOpen_StoresInUseAreReadThroughTheOperator(t *testing.T) {
	dir := t.TempDir()
	w, err := filestore.Open(dir, filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_, err = parse(t, "--archive=file://"+dir).Open(t.Context(), func() (*rest.Config, error) { return nil, errors.New("not needed") })
	if err == nil || !strings.Contains(err.Error(), "while the operator runs, omit --archive") {
		t.Errorf("got %v", err)
	}
}

func TestIdentities_ErrorsNameTheFlag(t *testing.T) {
	name := filepath.Join(t.TempDir(), "none")
	var status exit.Error
	if _, err := parse(t, "--identity="+name).Identities(); !errors.As(err, &status) || status.Code != exit.CodeUsage || !strings.Contains(err.Error(), "--identity="+name) {
		t.Errorf("got %v", err)
	}
	if all, err := parse(t).Identities(); err != nil || len(all) != 0 {
		t.Errorf("without the flag: %v %v", all, err)
	}
}

// endless is an archive whose headers have no end.
type endless struct{ Reader }

func (endless) Headers(_ context.Context, _ archive.Query, yield func(archive.Header) bool) error {
	for yield(archive.Header{}) {
	}
	return nil
}

func TestEach_IsBounded(t *testing.T) {
	n := 0
	if err := Each(t.Context(), endless{}, archive.Query{}, func(archive.Header) { n++ }); err == nil || n != maxHeaders || !strings.Contains(err.Error(), "select fewer") {
		t.Errorf("%d headers: %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := Each(ctx, endless{}, archive.Query{}, func(archive.Header) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
