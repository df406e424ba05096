package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/release"
)

// everywhere reports whether everything is to be released.
func (o *releaseOptions) everywhere() bool { return o.all && *o.Namespace == "" }

// admissions are the admission objects that are to be removed, if any are. A running
// operator needs them for the policies in force: without them the other collector
// deletes what they keep.
func (s *releasing) admissions(ctx context.Context) ([]release.Admission, error) {
	if !s.everywhere() {
		return nil, nil
	}
	found, err := s.Admissions(ctx)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	running, err := s.Running(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	if running != "" {
		kubectl.Fprintf(s.out, "Gleaner's admission objects stay, since an operator is running (lease %s) and has policies or finalizers for which it needs them:\n", running)
	} else {
		kubectl.Fprintln(s.out, "Gleaner's admission objects, for which there is no operator:")
	}
	for _, a := range found {
		kubectl.Fprintf(s.out, "  %s\n", a)
	}
	if running != "" {
		kubectl.Fprintln(s.out, "Delete the policies and finalizers, and they go by themselves; or stop the operator, and try again.")
		return nil, nil
	}
	return found, nil
}

func question(held []release.Held, admissions []release.Admission) string {
	objects, admission := counted(len(held), "object", "objects"), counted(len(admissions), "admission object", "admission objects")
	switch {
	case len(admissions) == 0:
		return fmt.Sprintf("Release %s?", objects)
	case len(held) == 0:
		return fmt.Sprintf("Remove %s?", admission)
	}
	return fmt.Sprintf("Remove %s, and release %s?", admission, objects)
}

// removeAll removes admission objects, before anything is released: they would put
// holds back in the very write that takes them off.
func (s *releasing) removeAll(ctx context.Context, admissions []release.Admission) (err error) {
	removed := 0
	for _, a := range admissions {
		if failed := s.Remove(ctx, a); failed != nil {
			kubectl.Fprintf(s.out, "%v\n", failed)
			err = errors.Join(err, failed)
			continue
		}
		removed++
	}
	if len(admissions) != 0 {
		kubectl.Fprintf(s.out, "Removed %d admission objects.\n", removed)
	}
	return err
}

// back says if admission objects are there again.
func (s *releasing) back(ctx context.Context) error {
	if !s.everywhere() {
		return nil
	}
	running, err := s.Running(ctx, time.Now())
	if err != nil || running != "" {
		return err // it has been said that they stay
	}
	found, err := s.Admissions(ctx)
	if err == nil && len(found) != 0 {
		err = fmt.Errorf("%d admission objects are there again, as %s: stop the operator, or delete the policies and finalizers that it serves, and try again",
			len(found), found[0])
	}
	return err
}
