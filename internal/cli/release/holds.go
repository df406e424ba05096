package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/release"
)

const inUseWarning = `
After a Finalizer or ClusterFinalizer, or its module, is deleted, its finalizer is no longer handled, and objects that have it can't be
deleted. To remove it from them, run this first: gleaner release finalizer/NAME -n NAMESPACE --live (or clusterfinalizer/NAME).
`

const archiveWarning = `
Some of these objects are not archived yet. Without the finalizer of their archive policy, they are deleted and cannot be restored.
`

// quietSweeps is the number of consecutive sweeps that must find no object: a single one may have
// run before a concurrent write.
const quietSweeps = 2

// maxSweeps is the maximum number of sweeps that find new holds.
const maxSweeps = 5

// sweepPause is the pause between two sweeps.
const sweepPause = 2 * time.Second

func (s *releaseRun) releaseHolds(ctx context.Context, where release.Selection) error {
	admissions, err := s.admissions(ctx)
	if err != nil {
		return err
	}
	held, err := s.search(ctx, where)
	if len(held) == 0 && len(admissions) == 0 {
		if err == nil {
			printer.Fprintln(s.out, "No object has a hold.")
		}
		return err
	}
	if len(held) != 0 {
		printHeld(s.out, held)
	}
	if err != nil {
		printer.Fprintf(s.out, "Some types could not be searched: %v\n", err)
	}
	if err := oneNamespace(where, held); err != nil {
		return err
	}
	if unserved := slices.ContainsFunc(held, func(h release.HeldObject) bool { return slices.Contains(h.Finalizers, v1alpha1.InUseFinalizer) }); unserved {
		printer.Fprintf(s.out, inUseWarning)
	}
	if slices.ContainsFunc(held, isUnarchived) {
		printer.Fprintf(s.out, archiveWarning)
	}
	if confirmed, err := s.prompt().Confirm(confirmationPrompt(held, admissions), "Nothing was released."); err != nil || !confirmed {
		return err
	}
	removed := s.removeAll(ctx, admissions)
	return errors.Join(removed, s.sweep(ctx, where, held))
}

// isUnarchived reports whether an object is being deleted and waits to be archived.
func isUnarchived(h release.HeldObject) bool {
	return h.Terminating && slices.ContainsFunc(h.Finalizers, func(finalizer string) bool {
		_, _, is := v1alpha1.ParseArchiveFinalizer(finalizer)
		return is
	})
}

// search finds the objects with a finalizer, and shows the progress on a terminal.
func (s *releaseRun) search(ctx context.Context, where release.Selection) ([]release.HeldObject, error) {
	var d printer.Step
	d.Set("Searching the cluster")
	over := d.Show(s.errOut)
	defer over()
	where.Progress = func(done, of int) { d.Set(fmt.Sprintf("Searching the cluster: %d of %d types", done, of)) }
	return s.Find(ctx, where)
}

// sweep releases the objects, and searches again until no new ones are found.
func (s *releaseRun) sweep(ctx context.Context, where release.Selection, held []release.HeldObject) error {
	released, err := s.releaseAll(ctx, held)
	rounds := 0
	for calm := 0; s.all && err == nil && calm < quietSweeps; calm++ {
		if err = s.pause(ctx, len(released)); err != nil {
			break
		}
		if held, err = s.search(ctx, where); err != nil || len(held) == 0 {
			continue
		}
		if rounds++; rounds > maxSweeps {
			err = fmt.Errorf("%d objects have a hold again: stop the operator, or delete its enforced policies, and try again", len(held))
			break
		}
		var more []release.HeldObject
		more, err = s.releaseAll(ctx, held)
		released, calm = append(released, more...), -1
	}
	printer.Fprintln(s.out, releaseSummary(released))
	return errors.Join(err, s.checkRecreated(ctx))
}

// releaseAll releases the objects, and prints the errors.
func (s *releaseRun) releaseAll(ctx context.Context, held []release.HeldObject) (released []release.HeldObject, err error) {
	var d printer.Step
	over := d.Show(s.errOut)
	var failures []error
	for i, h := range held {
		d.Set(fmt.Sprintf("Releasing: %d of %d", i+1, len(held)))
		done, failed := s.Release(ctx, h)
		if failed != nil {
			failures = append(failures, failed)
		}
		if done {
			released = append(released, h)
		}
	}
	over() // before anything else is printed
	for _, failed := range failures {
		printer.Fprintf(s.out, "%v\n", failed)
	}
	return released, errors.Join(failures...)
}

// oneNamespace returns an error if objects of several namespaces have the name.
func oneNamespace(where release.Selection, held []release.HeldObject) error {
	if where.Name == "" {
		return nil
	}
	for _, h := range held {
		if h.Namespace != held[0].Namespace {
			return fmt.Errorf("%s exists in several namespaces: select one with -n", h)
		}
	}
	return nil
}

// pause waits before the next sweep, and shows on a terminal what for.
func (s *releaseRun) pause(ctx context.Context, released int) error {
	var d printer.Step
	d.Set(fmt.Sprintf("Released %d; checking that no hold is added again", released))
	over := d.Show(s.errOut)
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
