package preview

import (
	"context"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/preview"
)

// Result is the preview of a deletion that another command asks for.
type Result struct {
	Preview *preview.Preview
	Unread  []string // types that could not be read, with the reason

	document *deletionPreview
}

// Of previews the deletion of objects with a propagation policy, or with none. The survey
// can't be used afterwards.
func Of(ctx context.Context, a *input.Input, targets []graph.ID, cascade metav1.DeletionPropagation, errOut io.Writer) (*Result, error) {
	p, err := simulate(ctx, a, deletion{targets: targets, cascade: cascade}, errOut)
	if err != nil {
		return nil, err
	}
	d := newDocument(a, p)
	return &Result{Preview: p, Unread: d.Unread, document: d}, nil
}

// Write writes the tree with the outcomes, and their numbers.
func (r *Result) Write(out io.Writer) error { return writeOutcomes(out, r.document, false) }

// Deletions returns how many objects would or might be deleted, now or later.
func (r *Result) Deletions() int { return r.document.Summary.deletions() }
