package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

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

func (o *releaseOptions) release(ctx context.Context, r *release.Releaser, where release.Where, in io.Reader, out io.Writer) error {
	admissions, err := o.admissions(ctx, r, out)
	if err != nil {
		return err
	}
	held, err := r.Find(ctx, where)
	if len(held) == 0 && len(admissions) == 0 {
		if err == nil {
			fmt.Fprintln(out, "Nothing there has a hold.")
		}
		return err
	}
	if len(held) != 0 {
		show(out, held)
	}
	if err != nil {
		fmt.Fprintf(out, "Not everything could be looked through: %v\n", err)
	}
	if err := o.oneNamespace(held); err != nil {
		return err
	}
	if unserved := slices.ContainsFunc(held, func(h release.Held) bool { return slices.Contains(h.Finalizers, release.InUse) }); unserved {
		fmt.Fprint(out, inUseWarning)
	}
	if !o.yes && !confirmed(in, out, question(held, admissions)) {
		fmt.Fprintln(out, "Nothing was released.")
		return nil
	}
	removed := removeAll(ctx, r, admissions, out)
	return errors.Join(removed, o.sweep(ctx, r, where, held, out))
}

// sweep releases what was found, and looks again until nothing turns up any more.
func (o *releaseOptions) sweep(ctx context.Context, r *release.Releaser, where release.Where, held []release.Held, out io.Writer) error {
	released, err := releaseAll(ctx, r, held, out)
	rounds := 0
	for calm := 0; o.all && err == nil && calm < quiet; calm++ {
		if err = sleep(ctx, sweepPause); err != nil {
			break
		}
		if held, err = r.Find(ctx, where); err != nil || len(held) == 0 {
			continue
		}
		if rounds++; rounds > mostRounds {
			err = fmt.Errorf("%d objects have a hold again: stop the operator, or delete the policies that it enforces, and try again", len(held))
			break
		}
		more := 0
		more, err = releaseAll(ctx, r, held, out)
		released, calm = released+more, -1
	}
	fmt.Fprintf(out, "Released %d.\n", released)
	return errors.Join(err, o.back(ctx, r))
}

func releaseAll(ctx context.Context, r *release.Releaser, held []release.Held, out io.Writer) (released int, err error) {
	for _, h := range held {
		done, failed := r.Release(ctx, h)
		if failed != nil {
			fmt.Fprintf(out, "%v\n", failed)
			err = errors.Join(err, failed)
		}
		if done {
			released++
		}
	}
	return released, err
}

// oneNamespace refuses a name without a namespace that more than one object has.
func (o *releaseOptions) oneNamespace(held []release.Held) error {
	if o.all || o.policy != "" || o.namespace != "" {
		return nil
	}
	for _, h := range held {
		if h.Namespace != held[0].Namespace {
			return fmt.Errorf("there is a %s in several namespaces: say which is meant, with -n", h)
		}
	}
	return nil
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
