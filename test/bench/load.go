package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

const (
	loadLabel = "bench.example.com/group" // one policy governs the objects of a group

	// goModules is the number of modules in Go; the others are in Rego.
	goModules = 5

	unloadedName = "Gleaner, no policy"
)

func loadedName() string {
	return fmt.Sprintf("Gleaner, %d policies of %d modules", manyPolicies, manyModules)
}

// loaded are the figures of one start with many objects.
type loaded struct {
	synced, collecting float64 // seconds from the start
	inForce, all       float64 // seconds until a policy has decided, and until all are in force
	now, peak, heap    float64 // MiB, resident and of Go's heap
	delays             []float64
	decisions          []float64 // ms, duration of the decisions in the records
	perSecond          float64
}

// load measures many objects, policies and modules in one operator, compared with
// kube-controller-manager with the same objects.
func (f loadBench) load(ctx context.Context, r *report, b budget) error {
	if f.large == 0 {
		return nil
	}
	c, err := f.define(ctx)
	if err != nil {
		return err
	}
	modules, err := f.differentModules(ctx, c)
	if err != nil {
		return err
	}
	if err := f.fill(ctx, f.large); err != nil {
		return err
	}
	names := []string{upstreamName, unloadedName, loadedName()}
	figures := map[string][]loaded{}
	for range f.rounds {
		for i, name := range names {
			l, err := f.loadedOnce(ctx, c, b, f.contenders[min(i, 1)], map[bool][]*v1alpha1.ClusterPolicyModule{true: modules}[i == 2])
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			progress("%s: collecting after %.2f s, %.0f MiB", name, l.collecting, l.now)
			figures[name] = append(figures[name], l)
		}
	}
	r.tables = append(r.tables, f.loadTable(names, figures))
	return nil
}

// differentModules returns modules with different code.
func (f loadBench) differentModules(ctx context.Context, c client.Client) ([]*v1alpha1.ClusterPolicyModule, error) {
	var modules []*v1alpha1.ClusterPolicyModule
	for i := range manyModules {
		name := fmt.Sprintf("load-%d", i)
		if i >= goModules {
			modules = append(modules, regoModule(name, fmt.Sprintf("%s# %d\n", deleteModule, i)))
			continue
		}
		m, err := wasmModule(ctx, c, f.binary, stockGo, name, fmt.Sprintf("%s\nfunc init() { println(%d) }\n", deleteModuleInGo, i))
		if err != nil {
			return nil, err
		}
		modules = append(modules, m)
	}
	return modules, nil
}

// applyLoad creates the modules, and policies that use them, of which each governs a group.
func applyLoad(ctx context.Context, c client.Client, modules []*v1alpha1.ClusterPolicyModule) error {
	for _, m := range modules {
		if err := c.Create(ctx, m.DeepCopy()); err != nil {
			return err
		}
	}
	return forEach(ctx, manyPolicies, func(ctx context.Context, i int) error {
		p := policyOf(fmt.Sprintf("load-%d", i), v1alpha1.NeedReference, modules[i%len(modules)])
		p.Spec.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{loadLabel: fmt.Sprint(i)}}
		return c.Create(ctx, p)
	})
}

func group(i int) map[string]string {
	return map[string]string{loadLabel: fmt.Sprint(i % manyPolicies)}
}

// loadedOnce starts a contender, with policies if there are modules for them, and measures
// it.
func (f loadBench) loadedOnce(ctx context.Context, c client.Client, b budget, by contender, modules []*v1alpha1.ClusterPolicyModule) (l loaded, err error) {
	namespace, err := f.namespace(ctx)
	if err != nil {
		return l, err
	}
	var probe *probe
	if modules != nil {
		if err := applyLoad(ctx, c, modules); err != nil {
			return l, err
		}
		if probe, err = f.probe(ctx, namespace); err != nil {
			return l, err
		}
		defer probe.end()
	}
	began := time.Now()
	if err := by.start(ctx, b); err != nil {
		return l, fmt.Errorf("start %s: %w", by.name(), err)
	}
	err = f.loadedUnder(ctx, c, by, probe, began, &l)
	if err == nil {
		err = f.decide(ctx, by, namespace, modules != nil, &l)
	}
	err = errors.Join(err, by.stop())
	if modules != nil {
		err = errors.Join(err, c.DeleteAllOf(ctx, &v1alpha1.ClusterGCPolicy{}), c.DeleteAllOf(ctx, &v1alpha1.ClusterPolicyModule{}))
	}
	return l, err
}

// loadedUnder measures a start.
func (f loadBench) loadedUnder(ctx context.Context, c client.Client, by contender, p *probe, began time.Time, l *loaded) error {
	if err := f.isSynced(ctx, by); err != nil {
		return err
	}
	gleaner, own := by.(*gleanerProcess)
	if own { // unknown for the other one
		l.synced = time.Since(began).Seconds()
	}
	if err := f.waitUntilCollecting(ctx, by); err != nil {
		return err
	}
	l.collecting = time.Since(began).Seconds()
	if p != nil {
		at, err := p.decided(ctx)
		if err != nil {
			return err
		}
		l.inForce = at.Sub(began).Seconds()
		if err := until(ctx, func() error { return allEnforcing(ctx, c) }); err != nil {
			return err
		}
		l.all = time.Since(began).Seconds()
	}
	time.Sleep(settling)
	var err error
	if l.now, l.peak, err = resident(by.pid()); err != nil {
		return err
	}
	if own {
		l.heap, err = gleaner.metric(ctx, "go_memstats_heap_inuse_bytes")
		l.heap /= 1 << 20
	}
	return err
}

// allEnforcing checks that all policies are in force.
func allEnforcing(ctx context.Context, c client.Client) error {
	for _, i := range []int{manyPolicies - 1, 0} { // cheaper than listing all
		if err := enforcing(ctx, c, fmt.Sprintf("load-%d", i)); err != nil {
			return err
		}
	}
	for i := range manyPolicies {
		if err := enforcing(ctx, c, fmt.Sprintf("load-%d", i)); err != nil {
			return err
		}
	}
	return nil
}

// decide deletes owners: one by one, and many in parallel.
func (f loadBench) decide(ctx context.Context, by contender, namespace string, governed bool, l *loaded) error {
	labels := func(int) map[string]string { return nil }
	if governed {
		labels = group
	}
	for i := range min(sequentialPairs, f.objects) {
		owner, err := f.labeledFamily(ctx, namespace, 1, func(int) map[string]string { return labels(i) })
		if err != nil {
			return err
		}
		took, err := f.deleteFamily(ctx, owner, 1, metav1.DeletePropagationBackground)
		if err != nil {
			return err
		}
		l.delays = append(l.delays, float64(took.Microseconds())/1000)
	}
	if gleaner, ok := by.(*gleanerProcess); ok {
		var err error
		if l.decisions, err = gleaner.decisions(ctx, governed); err != nil {
			return err
		}
	}
	owner, err := f.labeledFamily(ctx, namespace, f.objects, labels)
	if err != nil {
		return err
	}
	took, err := f.deleteFamily(ctx, owner, f.objects, metav1.DeletePropagationBackground)
	l.perSecond = float64(f.objects) / took.Seconds()
	return err
}

// metric reads one of Gleaner's metrics.
func (o *gleanerProcess) metric(ctx context.Context, name string) (float64, error) {
	content, err := o.metrics(ctx)
	if err != nil {
		return 0, err
	}
	return sum(content, name+" ", func(string) bool { return true })
}

// decisions returns the durations of the recorded decisions, either those by policies or
// those without, including their writes.
func (o *gleanerProcess) decisions(ctx context.Context, governed bool) ([]float64, error) {
	response, err := o.get(ctx, "/debug/gc/records")
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	defer response.Body.Close()
	var records struct {
		Items []struct {
			Asked    []json.RawMessage `json:"asked"`
			Action   string            `json:"action"`
			Duration time.Duration     `json:"durationNanoseconds"`
		} `json:"items"`
	}
	if err := json.NewDecoder(response.Body).Decode(&records); err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	var took []float64
	for _, e := range records.Items {
		if e.Action == "Delete" && (len(e.Asked) != 0) == governed {
			took = append(took, float64(e.Duration.Microseconds())/1000)
		}
	}
	if len(took) == 0 {
		return nil, errors.New("read records: none found")
	}
	return took, nil
}

// probe is an object without an owner when the operator starts: it is collected as
// soon as the policies are in force, and not before.
type probe struct {
	name string
	gone chan time.Time // time of deletion
	end  func()
}

func (f loadBench) probe(ctx context.Context, namespace string) (*probe, error) {
	owner, err := f.labeledFamily(ctx, namespace, 1, group)
	if err != nil {
		return nil, err
	}
	maps := f.client.CoreV1().ConfigMaps(namespace)
	if err := maps.Delete(ctx, owner.Name, metav1.DeleteOptions{}); err != nil {
		return nil, err
	}
	p := &probe{name: owner.Name + "-0", gone: make(chan time.Time, 1)}
	watching, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + p.name})
	if err != nil {
		return nil, err
	}
	p.end = watching.Stop
	go func() { // stopped by end
		for e := range watching.ResultChan() {
			if e.Type == watch.Deleted {
				p.gone <- time.Now()
				return
			}
		}
	}()
	return p, nil
}

// decided waits until the probe is gone, and returns the time.
func (p *probe) decided(ctx context.Context) (time.Time, error) {
	select {
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	case <-time.After(timeout):
		return time.Time{}, fmt.Errorf("no policy decided about %s within %s", p.name, timeout)
	case at := <-p.gone:
		return at, nil
	}
}

// loadTable shows medians, and percentiles over all rounds.
func (f loadBench) loadTable(names []string, figures map[string][]loaded) table {
	t := table{columns: slices.Concat([]string{fmt.Sprintf("with %d objects", f.large)}, names)}
	type line struct {
		name  string
		value func([]loaded) float64
	}
	of := func(figure func(loaded) float64) func([]loaded) float64 {
		return func(all []loaded) float64 { return medianIn(all, figure) }
	}
	at := func(p int, figure func(loaded) []float64) func([]loaded) float64 {
		return func(all []loaded) float64 {
			var values []float64
			for _, l := range all {
				values = append(values, figure(l)...)
			}
			return percentile(values, p)
		}
	}
	delays, decisions := func(l loaded) []float64 { return l.delays }, func(l loaded) []float64 { return l.decisions }
	for _, line := range []line{
		{"seconds until all is listed", of(func(l loaded) float64 { return l.synced })},
		{"seconds until it collects", of(func(l loaded) float64 { return l.collecting })},
		{"seconds until a policy has decided", of(func(l loaded) float64 { return l.inForce })},
		{"seconds until all say that they are in force", of(func(l loaded) float64 { return l.all })},
		{fmt.Sprintf("resident memory %.0f s later, MiB", settling.Seconds()), of(func(l loaded) float64 { return l.now })},
		{"peak resident memory, MiB", of(func(l loaded) float64 { return l.peak })},
		{"Go's heap in use, MiB", of(func(l loaded) float64 { return l.heap })},
		{"delay p50, ms", at(50, delays)},
		{"delay p99, ms", at(99, delays)},
		{"of that, the decision and its write, p50, ms", at(50, decisions)},
		{"of that, the decision and its write, p99, ms", at(99, decisions)},
		{fmt.Sprintf("background of %d, objects/s", f.objects), of(func(l loaded) float64 { return l.perSecond })},
	} {
		row := []string{line.name}
		for _, name := range names {
			value := "" // not measured
			if v := line.value(figures[name]); v > 0 {
				value = formatValue(v)
			}
			row = append(row, value)
		}
		t.rows = append(t.rows, row)
	}
	return t
}
