package release

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/release"
)

// allNamespaces reports whether all objects are to be released, in all namespaces.
func (o *options) allNamespaces() bool { return o.all && *o.Namespace == "" }

// admissions returns the admission objects to remove. A running operator needs them for the
// policies in force: without them, the built-in garbage collector deletes objects that
// policies keep.
func (s *releaseRun) admissions(ctx context.Context) ([]release.AdmissionObject, error) {
	if !s.allNamespaces() {
		return nil, nil
	}
	found, err := s.AdmissionObjects(ctx)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	running, err := s.runningOperator(ctx)
	if err != nil {
		return nil, err
	}
	if running != "" {
		printer.Fprintf(s.out, "Keeping Gleaner's admission objects, because an operator is running (lease %s) and needs them for policies or finalizers:\n", running)
	} else {
		printer.Fprintln(s.out, "Gleaner's admission objects, without a running operator:")
	}
	for _, a := range found {
		printer.Fprintf(s.out, "  %s\n", a)
	}
	if running != "" {
		printer.Fprintln(s.out, "The operator removes them after all policies and finalizers are deleted. To remove them now, stop the operator and try again.")
		return nil, nil
	}
	return found, nil
}

// runningOperator returns the leases of a running operator; "" if there are none. After --stop-operator, it was observed to have ended, and
// leases in other namespaces, which tenants may create, say nothing about it.
func (s *releaseRun) runningOperator(ctx context.Context) (string, error) {
	if s.stopOperator != "" {
		return "", nil
	}
	return s.ActiveLeases(ctx, time.Now())
}

func confirmationPrompt(held []release.HeldObject, admissions []release.AdmissionObject) string {
	objects, admission := printer.Count(len(held), "object", "objects"), printer.Count(len(admissions), "admission object", "admission objects")
	switch {
	case len(admissions) == 0:
		return fmt.Sprintf("Release %s?", objects)
	case len(held) == 0:
		return fmt.Sprintf("Remove %s?", admission)
	}
	return fmt.Sprintf("Remove %s, and release %s?", admission, objects)
}

// removeAll removes admission objects before any object is released: they would add the hold
// again in the same write that removes it.
func (s *releaseRun) removeAll(ctx context.Context, admissions []release.AdmissionObject) (err error) {
	removed := 0
	for _, a := range admissions {
		if failed := s.RemoveAdmissionObject(ctx, a); failed != nil {
			printer.Fprintf(s.out, "%v\n", failed)
			err = errors.Join(err, failed)
			continue
		}
		removed++
	}
	if len(admissions) != 0 {
		printer.Fprintf(s.out, "Removed %s.\n", printer.Count(removed, "admission object", "admission objects"))
	}
	return err
}

// checkRecreated returns an error if admission objects exist again.
func (s *releaseRun) checkRecreated(ctx context.Context) error {
	if !s.allNamespaces() {
		return nil
	}
	running, err := s.runningOperator(ctx)
	if err != nil || running != "" {
		return err // they are kept, as printed before
	}
	found, err := s.AdmissionObjects(ctx)
	if err == nil && len(found) != 0 {
		err = fmt.Errorf("%d admission objects were created again, such as %s: stop the operator, or delete its policies and finalizers, and try again",
			len(found), found[0])
	}
	return err
}
