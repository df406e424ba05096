package run

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/operator/budgeter"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

var (
	budgetUsedDesc = prometheus.NewDesc("gleaner_deletion_budget_used",
		"Deletions in the current window of a deletion budget, with those that are reserved.", []string{"budget"}, nil)
	budgetAllowedDesc = prometheus.NewDesc("gleaner_deletion_budget_allowed",
		"Deletions that a deletion budget allows in a window.", []string{"budget"}, nil)
	budgetWaitingDesc = prometheus.NewDesc("gleaner_deletion_budget_waiting",
		"Deletions that wait for a deletion budget on this replica.", []string{"budget"}, nil)
	budgetExhaustedDesc = prometheus.NewDesc("gleaner_deletion_budget_exhausted",
		"Whether deletions wait for a deletion budget.", []string{"budget"}, nil)
)

// maxBudgetSeries is the number of budgets with metrics. Those of the cluster come first.
const maxBudgetSeries = 1000

// budgeting limits deletions.
type budgeting struct {
	budgeter           *budgeter.Budgeter
	reserves, confirms writer.Step
}

// connectBudgets makes what limits deletions. It sends no requests yet.
func (op *Operator) connectBudgets(objects metadata.Interface, from reads) {
	counter := budgeter.Counter{Objects: objects, Catalog: op.types, Reader: from.reader}
	op.budgeting.budgeter = budgeter.New(budgeter.Options{
		Client: op.policyClient, Absent: func(ctx context.Context, gk schema.GroupKind) (bool, error) { return op.watcher.Absent(ctx, gk) },
		ID: string(uuid.NewUUID()), Leading: op.gate.IsLeading, Catalog: op.types, Reader: from.reader, Bulk: from.bulk, Count: counter.Count, Events: op.policyEvents,
		Now: op.now, Log: op.log.WithName("budgets"),
	})
	op.budgeting.reserves, op.budgeting.confirms = op.budgeting.budgeter.Steps()
}

// around returns steps with what reserves deletions before them and confirms that after them.
func (b budgeting) around(steps []writer.Step) []writer.Step {
	return slices.Concat([]writer.Step{b.reserves}, steps, []writer.Step{b.confirms})
}

// budgetCalls queues the objects whose turn it has come to be deleted.
func (f follower) budgetCalls(ctx context.Context) error {
	for ctx.Err() == nil {
		if ids := f.budgeting.budgeter.Called(ctx); len(ids) != 0 {
			f.store.Requeue(ids)
			f.retention.Retry()
		}
	}
	return nil
}

// collect passes the metrics of budgets on.
func (b budgeting) collect(out chan<- prometheus.Metric) {
	all, err := b.budgeter.Summaries()
	if err != nil {
		return
	}
	for _, s := range all[:min(len(all), maxBudgetSeries)] {
		gauge := func(desc *prometheus.Desc, value float64) {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, s.Budget)
		}
		gauge(budgetUsedDesc, float64(s.Used))
		gauge(budgetAllowedDesc, float64(s.Allowed))
		gauge(budgetWaitingDesc, float64(s.Waiting))
		gauge(budgetExhaustedDesc, number(s.Exhausted))
	}
}
