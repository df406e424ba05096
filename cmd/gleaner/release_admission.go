package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gleaner-dev/gleaner/operator/release"
)

// everywhere reports whether everything is to be released.
func (o *releaseOptions) everywhere() bool { return o.all && o.namespace == "" }

// admissions are the admission objects that are to be removed, if any are. A running
// operator needs them for the policies in force: without them the other collector
// deletes what they keep.
func (o *releaseOptions) admissions(ctx context.Context, r *release.Releaser, out io.Writer) ([]release.Admission, error) {
	if !o.everywhere() {
		return nil, nil
	}
	found, err := r.Admissions(ctx)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	running, err := r.Running(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	if running != "" {
		fmt.Fprintf(out, "Gleaner's admission objects stay, since an operator is running (lease %s) and has policies or finalizers for which it needs them:\n", running)
	} else {
		fmt.Fprintln(out, "Gleaner's admission objects, for which there is no operator:")
	}
	for _, a := range found {
		fmt.Fprintf(out, "  %s\n", a)
	}
	if running != "" {
		fmt.Fprintln(out, "Delete the policies and finalizers, and they go by themselves; or stop the operator, and try again.")
		return nil, nil
	}
	return found, nil
}

func question(held []release.Held, admissions []release.Admission) string {
	switch {
	case len(admissions) == 0:
		return fmt.Sprintf("Release %d?", len(held))
	case len(held) == 0:
		return fmt.Sprintf("Remove %d admission objects?", len(admissions))
	}
	return fmt.Sprintf("Remove %d admission objects, and release %d?", len(admissions), len(held))
}

// removeAll removes admission objects, before anything is released: they would put
// holds back in the very write that takes them off.
func removeAll(ctx context.Context, r *release.Releaser, admissions []release.Admission, out io.Writer) (err error) {
	removed := 0
	for _, a := range admissions {
		if failed := r.Remove(ctx, a); failed != nil {
			fmt.Fprintf(out, "%v\n", failed)
			err = errors.Join(err, failed)
			continue
		}
		removed++
	}
	if len(admissions) != 0 {
		fmt.Fprintf(out, "Removed %d admission objects.\n", removed)
	}
	return err
}

// back says if admission objects are there again.
func (o *releaseOptions) back(ctx context.Context, r *release.Releaser) error {
	if !o.everywhere() {
		return nil
	}
	running, err := r.Running(ctx, time.Now())
	if err != nil || running != "" {
		return err // it has been said that they stay
	}
	found, err := r.Admissions(ctx)
	if err == nil && len(found) != 0 {
		err = fmt.Errorf("%d admission objects are there again, as %s: stop the operator, or delete the policies and finalizers that it serves, and try again",
			len(found), found[0])
	}
	return err
}
