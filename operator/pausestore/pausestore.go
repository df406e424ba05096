// Package pausestore reads Pauses and ClusterPauses, publishes them as one value on every replica,
// and writes their status where this replica leads.
//
// What a pause stops is decided elsewhere: see package pause.
package pausestore

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/livelist"
	"github.com/gleaner-dev/gleaner/operator/livesource"
	"github.com/gleaner-dev/gleaner/operator/pause"
)

// Options configure a Source. All fields are required.
type Options struct {
	Client client.Client // reads live

	Absent  livelist.Absent
	Leading func() bool // reports whether this replica writes status
	Now     func() time.Time
	Log     logr.Logger
}

// published is what is published after a read.
type published struct {
	resources []Resource
	set       *pause.Set
}

// Source has the pauses. Create it with New, and run it. Its methods may be called concurrently,
// except for Run.
type Source struct {
	*livesource.Source[published]
}

// New returns a Source that has read nothing yet.
func New(o Options) *Source {
	return &Source{livesource.New(livesource.Options[published]{
		Name: "pauses", Kinds: []string{v1alpha1.KindPause, v1alpha1.KindClusterPause}, Now: o.Now, Log: o.Log,
		Read: o.read, Published: o.writeStatus,
	})}
}

func (o Options) read(ctx context.Context) (published, bool, error) {
	all, served, err := Read(ctx, o.Client, o.Absent)
	pauses := make([]pause.Pause, len(all))
	for i, r := range all {
		pauses[i] = r.Pause()
	}
	return published{all, pause.NewSet(pauses)}, served, err
}

// writeStatus writes the statuses, and returns when the next pause ends by itself.
func (o Options) writeStatus(ctx context.Context, p published) time.Time {
	now := o.Now()
	if o.Leading() {
		if err := writeStatus(ctx, o.Client, p.resources, now); err != nil {
			o.Log.Error(err, "Could not write the status of pauses, retrying")
		}
	}
	return p.set.NextEnd(now)
}

// Current returns the pauses, including those that have ended; an error, for people, if they
// are not known.
func (s *Source) Current() (*pause.Set, error) {
	p, err := s.Source.Current()
	if err != nil {
		return nil, fmt.Errorf("whether this is paused is not known: %w", err)
	}
	return p.set, nil
}
