package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/release"
)

const inUseWarning = `
Of a Finalizer or ClusterFinalizer that goes, or whose module does, nobody serves the finalizer any more, and objects that have it stay when they
are deleted. To take it off them, do this first: gleaner release finalizer/NAME -n NAMESPACE --live (or clusterfinalizer/NAME).
`

// quiet is how many sweeps in a row have to find nothing: one that finds nothing
// may have looked before somebody else's write.
const quiet = 2

// mostRounds is how often holds may turn up again before it is given up.
const mostRounds = 5

// sweepPause is between two sweeps.
const sweepPause = 2 * time.Second

func (s *releasing) releaseHolds(ctx context.Context, where release.Where) error {
	admissions, err := s.admissions(ctx)
	if err != nil {
		return err
	}
	held, err := s.look(ctx, where)
	if len(held) == 0 && len(admissions) == 0 {
		if err == nil {
			kubectl.Fprintln(s.out, "Nothing there has a hold.")
		}
		return err
	}
	if len(held) != 0 {
		show(s.out, held)
	}
	if err != nil {
		kubectl.Fprintf(s.out, "Not everything could be looked through: %v\n", err)
	}
	if err := oneNamespace(where, held); err != nil {
		return err
	}
	if unserved := slices.ContainsFunc(held, func(h release.Held) bool { return slices.Contains(h.Finalizers, release.InUse) }); unserved {
		kubectl.Fprintf(s.out, inUseWarning)
	}
	if !s.yes && !confirmed(s.in, s.out, question(held, admissions)) {
		kubectl.Fprintln(s.out, "Nothing was released.")
		return nil
	}
	removed := s.removeAll(ctx, admissions)
	return errors.Join(removed, s.sweep(ctx, where, held))
}

// look finds what has a finalizer, and shows on a terminal how far it is.
func (s *releasing) look(ctx context.Context, where release.Where) ([]release.Held, error) {
	var d doing
	d.set("Looking through the cluster")
	over := d.shown(s.errOut)
	defer over()
	where.Listed = func(done, of int) { d.set(fmt.Sprintf("Looking through the cluster: %d of %d types", done, of)) }
	return s.Find(ctx, where)
}

// sweep releases what was found, and looks again until nothing turns up any more.
func (s *releasing) sweep(ctx context.Context, where release.Where, held []release.Held) error {
	released, err := s.releaseAll(ctx, held)
	rounds := 0
	for calm := 0; s.all && err == nil && calm < quiet; calm++ {
		if err = s.pause(ctx, len(released)); err != nil {
			break
		}
		if held, err = s.look(ctx, where); err != nil || len(held) == 0 {
			continue
		}
		if rounds++; rounds > mostRounds {
			err = fmt.Errorf("%d objects have a hold again: stop the operator, or delete the policies that it enforces, and try again", len(held))
			break
		}
		var more []release.Held
		more, err = s.releaseAll(ctx, held)
		released, calm = append(released, more...), -1
	}
	kubectl.Fprintln(s.out, releaseSummary(released))
	return errors.Join(err, s.back(ctx))
}

// releaseAll releases what was found, and says of what that failed.
func (s *releasing) releaseAll(ctx context.Context, held []release.Held) (released []release.Held, err error) {
	var d doing
	over := d.shown(s.errOut)
	var failures []error
	for i, h := range held {
		d.set(fmt.Sprintf("Releasing: %d of %d", i+1, len(held)))
		done, failed := s.Release(ctx, h)
		if failed != nil {
			failures = append(failures, failed)
		}
		if done {
			released = append(released, h)
		}
	}
	over() // what follows would be written into its line
	for _, failed := range failures {
		kubectl.Fprintf(s.out, "%v\n", failed)
	}
	return released, errors.Join(failures...)
}

// oneNamespace refuses a name that objects of more than one namespace have.
func oneNamespace(where release.Where, held []release.Held) error {
	if where.Name == "" {
		return nil
	}
	for _, h := range held {
		if h.Namespace != held[0].Namespace {
			return fmt.Errorf("there is a %s in several namespaces: say which is meant, with -n", h)
		}
	}
	return nil
}

// pause is before another look, and says on a terminal what for.
func (s *releasing) pause(ctx context.Context, released int) error {
	var d doing
	d.set(fmt.Sprintf("Released %d; seeing that nothing puts them back", released))
	over := d.shown(s.errOut)
	defer over()
	return sleep(ctx, sweepPause)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
