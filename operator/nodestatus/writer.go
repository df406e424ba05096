package nodestatus

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/nodeagent"
)

const (
	minInterval = 10 * time.Second // between two writes
	refresh     = 5 * time.Minute  // of a status in which only the times differ
	callTimeout = 30 * time.Second
)

// Writer writes the NodeRetention of a node.
type Writer struct {
	Client client.Client // writes, and reads without a cache
	Events events.EventRecorder
	Node   func() *corev1.Node // nil until it is known
	Log    logr.Logger

	reports latest.Value[published]
	totals  Totals
	short   bool // a round has not freed enough before
	written v1alpha1.NodeRetentionStatus
	at      time.Time
}

// published is a report with what it adds up to.
type published struct {
	report nodeagent.Report
	totals Totals
}

// Publish takes a report, raises its events, and has the status written. It does not wait for that.
func (w *Writer) Publish(r nodeagent.Report) {
	w.totals.Add(r)
	t := w.totals
	t.Recent = append([]nodeagent.Removal(nil), t.Recent...)
	if node := w.Node(); node != nil {
		for _, e := range Events(r, !w.short) {
			w.Events.Eventf(node, nil, eventTypes[e.Reason], e.Reason, "Retention", "%s", e.Message)
		}
	}
	if r.Short != nil {
		w.Log.Info("too little space was freed", "usedPercent", r.Short.UsedPercent, "highThresholdPercent", r.Short.HighPercent, "freedBytes", r.Short.Freed)
	}
	w.short = w.short || r.Short != nil
	w.reports.Store(published{r, t})
}

// Run writes until the context ends.
func (w *Writer) Run(ctx context.Context) {
	for {
		changed := w.reports.Changed()
		retry := false
		if p, ok := w.reports.Load(); ok {
			if err := w.write(ctx, p); err != nil && ctx.Err() == nil {
				w.Log.Error(err, "cannot write the status of the node")
				retry = true
			}
		}
		timer := time.NewTimer(minInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if retry {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// write writes a status if it says something new.
func (w *Writer) write(ctx context.Context, p published) error {
	status := Of(w.written, p.report, p.totals)
	if time.Since(w.at) < refresh && sameBut(status, w.written) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	live, err := w.live(ctx)
	if err != nil || live == nil {
		return err
	}
	status = Of(live.Status, p.report, p.totals)
	live.Status = status
	if err := w.Client.Status().Update(ctx, live); err != nil {
		return fmt.Errorf("update status of NodeRetention: %w", err)
	}
	w.written, w.at = status, time.Now()
	return nil
}

// sameBut reports whether two statuses differ in nothing but when the node was looked at and how full it is.
func sameBut(a, b v1alpha1.NodeRetentionStatus) bool {
	a.LastEvaluation, a.ImageFilesystem = b.LastEvaluation, b.ImageFilesystem
	return equality.Semantic.DeepEqual(a, b)
}

// live reads the NodeRetention of the node, and creates it if there is none. It returns nil while the node is not known.
func (w *Writer) live(ctx context.Context) (*v1alpha1.NodeRetention, error) {
	node := w.Node()
	if node == nil {
		return nil, nil
	}
	n := &v1alpha1.NodeRetention{}
	err := w.Client.Get(ctx, client.ObjectKey{Name: node.Name}, n)
	if !apierrors.IsNotFound(err) {
		if err != nil {
			return nil, fmt.Errorf("read NodeRetention: %w", err)
		}
		return n, nil
	}
	n = &v1alpha1.NodeRetention{ObjectMeta: metav1.ObjectMeta{
		Name:            node.Name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}, // it goes with the node
	}}
	if err := w.Client.Create(ctx, n); err != nil {
		return nil, fmt.Errorf("create NodeRetention: %w", err)
	}
	return n, nil
}
