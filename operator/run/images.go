package run

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/imagereview"
)

// connectImages makes what answers whether nodes may remove images. It sends no requests yet.
func (op *Operator) connectImages(watching *rest.Config, from reads) error {
	lister, err := bulkread.NewLiveLister(watching)
	if err != nil {
		return err
	}
	op.images = imagereview.New(imagereview.Options{
		Client: op.policyClient, Absent: func(ctx context.Context, gk schema.GroupKind) (bool, error) { return op.watcher.Absent(ctx, gk) },
		Evaluator: view{op}, Policies: op.snapshots.Policies, Graph: op.store, Types: op.types, Reader: from.reader, Lister: lister,
		Answers: func() bool { return op.gate.IsLeading() && !op.options.DryRun }, Record: op.recorder.RecordImage, Now: op.now, Log: op.log.WithName("images"),
	})
	return nil
}
