// Package demo implements gleaner-dev demo.
package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/dev"
	"github.com/gleaner-dev/gleaner/internal/cli/modes"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/record"
)

const (
	namespace        = "demo"
	demoReplicas     = 3
	demoTimeout      = 60 * time.Second
	demoPollInterval = 50 * time.Millisecond
	demoQuietPeriod  = 5 * time.Second // until the step that is waited for is printed
)

// Command returns the command gleaner-dev demo.
func Command(version string) *cobra.Command {
	var flags dev.Flags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Demonstrate Gleaner on a local control plane",
		Long: "Start a control plane on this machine, with Gleaner as its garbage collector; delete Deployments with\n" +
			"background, foreground and orphan propagation; apply policies in Rego and Go and delete objects again; let a\n" +
			"finalizer in Go delete a bucket on an S3 server; pause; stop a runaway deletion by a budget; and restore a\n" +
			"Deployment from the archive after a restart of Gleaner. Decisions are printed with their reasons.\n\n" +
			"Exit codes: 0 if everything worked as expected; 1 otherwise, with the reason.",
		Args: arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), version, &flags, cmd.OutOrStdout())
		},
	}
	flags.AddTo(cmd.Flags())
	return cmd
}

func demo(ctx context.Context, version string, flags *dev.Flags, out io.Writer) error {
	mode, controlPlane := flags.Mode(), flags.ControlPlane()
	if mode == modes.Companion {
		printer.Fprintln(out, "== Starting a control plane with a complete kube-controller-manager, including the built-in garbage collector")
	} else {
		printer.Fprintln(out, "== Starting a control plane with the controllers for Deployments, ReplicaSets, namespaces, service accounts and claims, and Gleaner as its only garbage collector")
		controlPlane.BasicControllers = true // kube-controller-manager takes a minute more to build
	}
	s, err := dev.Start(ctx, dev.EnvironmentOptions{Version: version, Mode: mode, ControlPlane: controlPlane}, out, logr.Discard())
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(s.Cluster.RESTConfig())
	if err != nil {
		return s.Stop(err)
	}
	d := &demoRun{Environment: s, out: out, client: client, printed: map[string]bool{}, quietPeriod: demoQuietPeriod}
	d.onPoll = d.printRecords
	if d.builds, err = newBuilds(ctx); err != nil {
		return s.Stop(err)
	}
	defer d.builds.stop()
	began := time.Now()
	if mode == modes.Companion {
		err = d.runSteps(ctx, d.companionSteps())
	} else {
		err = d.runSteps(ctx, d.steps())
	}
	if err == nil {
		d.summarize(time.Since(began))
	}
	return s.Stop(err)
}

// demoRun runs the steps of the demo on a control plane.
type demoRun struct {
	*dev.Environment
	out         io.Writer
	client      kubernetes.Interface
	builds      *builds
	quietPeriod time.Duration   // after which the step that is waited for is printed
	onPoll      func()          // prints new decisions
	printed     map[string]bool // printed records
	counts      [3]int          // deletions, removed references, removed finalizers
	pod         string          // that was deleted by mistake
}

// demoStep is one step of the demo.
type demoStep struct {
	name string
	run  func(context.Context) error
}

func (d *demoRun) steps() []demoStep {
	return []demoStep{
		{"Check with a canary that no other garbage collector is running", d.canary},
		{"Background deletion: kubectl delete deployment", d.firstDeletion},
		{"Foreground deletion: the owner is deleted last", d.foreground},
		{"Orphan deletion: the dependents are kept", d.orphan},
		{"A Rego policy in Monitor mode: its decisions are recorded without effect", d.monitor},
		{"The same policy in Enforce mode: objects with the label are kept", d.enforce},
		{"A Go policy, compiled to WebAssembly: the claim with the label is kept", d.wasm},
		{"A finalizer in Go: an S3 bucket is deleted before the object that represents it", d.bucket},
		{"A pause: nothing is deleted until it ends", d.pause},
		{"A deletion budget: a runaway deletion stops after two Pods, until a person resumes", d.budget},
		{"An archive policy, and a Deployment that is deleted by mistake", d.mistake},
		{"Gleaner is restarted, and explains why the Deployment's Pods are gone", d.explainAfterRestart},
		{"The Deployment is restored", d.restore},
	}
}

func (d *demoRun) runSteps(ctx context.Context, acts []demoStep) error {
	for _, act := range acts {
		printer.Fprintf(d.out, "\n== %s\n", act.name)
		if err := act.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(act.name), err)
		}
	}
	return nil
}

func (d *demoRun) canary(ctx context.Context) error {
	if err := d.until(ctx, func() error {
		if status := d.Collector.Show().Status(); !status.Collecting {
			return fmt.Errorf("not collecting: %s", status.Message)
		}
		return nil
	}); err != nil {
		return err
	}
	printer.Fprintln(d.out, "No other garbage collector is running: Gleaner is collecting.")
	return d.kubectl(ctx, "create", "namespace", namespace)
}

// firstDeletion runs before builds for later steps start.
func (d *demoRun) firstDeletion(ctx context.Context) error {
	if err := d.background(ctx); err != nil {
		return err
	}
	d.builds.start()
	return nil
}

func (d *demoRun) background(ctx context.Context) error {
	if err := d.deployment(ctx, "background"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "delete", "deployment", "background", "-n", namespace); err != nil {
		return err
	}
	return d.until(ctx, func() error { return d.checkRemaining(ctx, "background", 0, 0) })
}

func (d *demoRun) foreground(ctx context.Context) error {
	if err := d.deployment(ctx, "foreground"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "delete", "deployment", "foreground", "-n", namespace, "--cascade=foreground"); err != nil {
		return err
	}
	if err := d.until(ctx, func() error { return d.checkRemaining(ctx, "foreground", 0, 0) }); err != nil {
		return err
	}
	return d.checkOwnersLast("foreground")
}

// checkOwnersLast checks in the records that the Pods were deleted before their ReplicaSet was
// released, and the ReplicaSet before the Deployment.
func (d *demoRun) checkOwnersLast(app string) error {
	rank, last := map[string]int{"Pod": 1, "ReplicaSet": 2, "Deployment": 3}, 0
	for _, e := range d.Collector.Records("") {
		final := e.Object.Kind == "Pod" && e.Action == record.Delete || e.Action == record.RemoveFinalizer
		if !strings.HasPrefix(e.Object.Name, app) || !final || e.Result != "Done" {
			continue
		}
		if rank[e.Object.Kind] < last {
			return fmt.Errorf("%s was deleted after its owner", e.Object)
		}
		last = rank[e.Object.Kind]
	}
	if last != rank["Deployment"] {
		return fmt.Errorf("there is no record that the Deployment was released")
	}
	return nil
}

func (d *demoRun) orphan(ctx context.Context) error {
	if err := d.deployment(ctx, "orphan"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "delete", "deployment", "orphan", "-n", namespace, "--cascade=orphan"); err != nil {
		return err
	}
	if err := d.until(ctx, func() error { return d.checkRemaining(ctx, "orphan", 1, demoReplicas) }); err != nil {
		return err
	}
	return d.kubectl(ctx, "get", "replicasets,pods", "-n", namespace, "-l", "app=orphan")
}

// deployment creates a Deployment, and waits for its ReplicaSet and Pods.
func (d *demoRun) deployment(ctx context.Context, name string) error {
	err := d.kubectl(ctx, "create", "deployment", name, "-n", namespace, "--image=registry.k8s.io/pause:3.10", fmt.Sprintf("--replicas=%d", demoReplicas))
	if err != nil {
		return err
	}
	err = d.until(ctx, func() error {
		sets, pods, err := d.list(ctx, name)
		if err != nil {
			return err
		}
		if len(sets) != 1 || len(pods) != demoReplicas {
			return fmt.Errorf("its controllers have created %d ReplicaSets and %d Pods", len(sets), len(pods))
		}
		return nil
	})
	if err == nil {
		printer.Fprintf(d.out, "  Its controllers have created 1 ReplicaSet and %d Pods.\n", demoReplicas)
	}
	return err
}

// checkRemaining returns an error unless the Deployment is gone and exactly the wanted numbers of
// ReplicaSets, without owners, and Pods remain.
func (d *demoRun) checkRemaining(ctx context.Context, name string, wantSets, wantPods int) error {
	deployments, err := d.client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return err
	}
	sets, pods, err := d.list(ctx, name)
	if err != nil {
		return err
	}
	if len(deployments.Items) != 0 || len(sets) != wantSets || len(pods) != wantPods {
		return fmt.Errorf("there are %d Deployments, %d ReplicaSets and %d Pods; expected 0, %d and %d",
			len(deployments.Items), len(sets), len(pods), wantSets, wantPods)
	}
	for _, set := range sets {
		if len(set.OwnerReferences) != 0 {
			return fmt.Errorf("ReplicaSet %s still has an owner reference", set.Name)
		}
	}
	return nil
}

func (d *demoRun) list(ctx context.Context, name string) ([]appsv1.ReplicaSet, []corev1.Pod, error) {
	options := metav1.ListOptions{LabelSelector: "app=" + name}
	sets, err := d.client.AppsV1().ReplicaSets(namespace).List(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	pods, err := d.client.CoreV1().Pods(namespace).List(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	return sets.Items, pods.Items, nil
}

// until prints decisions until check succeeds.
func (d *demoRun) until(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	tick, quiet := time.NewTicker(demoPollInterval), time.NewTicker(d.quietPeriod)
	defer tick.Stop()
	defer quiet.Stop()
	for {
		err := check()
		d.onPoll()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", demoTimeout, err)
		case err := <-d.Done:
			d.Done <- nil
			return fmt.Errorf("the collector stopped: %w", err)
		case <-quiet.C:
			printer.Fprintf(d.out, "  Waiting: %s\n", err)
		case <-tick.C:
		}
	}
}

// printRecords prints the records that were not printed yet.
func (d *demoRun) printRecords() {
	if d.Collector == nil {
		return // it has been restarted as a process of its own
	}
	for _, e := range d.Collector.Records("") {
		key, err := json.Marshal(e)
		if err != nil || d.printed[string(key)] || e.Action == record.None || e.Object.Namespace != namespace {
			continue
		}
		d.printed[string(key)] = true
		printer.Fprintf(d.out, "  %s\n", e)
		if e.Result != "Done" {
			continue
		}
		switch e.Action {
		case record.Delete:
			d.counts[0]++
		case record.DropReferences:
			d.counts[1]++
		case record.RemoveFinalizer:
			d.counts[2]++
		default: // not counted
		}
	}
}

func (d *demoRun) kubectl(ctx context.Context, args ...string) error {
	printer.Fprintf(d.out, "$ kubectl %s\n", strings.Join(args, " "))
	type answer struct {
		text string
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		text, err := d.Cluster.Kubectl(ctx, args...)
		done <- answer{text, err}
	}()
	tick, quiet := time.NewTicker(demoPollInterval), time.NewTicker(d.quietPeriod)
	defer tick.Stop()
	defer quiet.Stop()
	for {
		select {
		case <-quiet.C:
			printer.Fprintln(d.out, "  Waiting for kubectl")
		case a := <-done:
			d.printRecords()
			for line := range strings.Lines(a.text) {
				printer.Fprintf(d.out, "  %s\n", printer.Safe(strings.TrimSuffix(line, "\n"))) // kubectl has escaped it for a terminal
			}
			return a.err
		case <-tick.C:
			d.printRecords()
		}
	}
}

func (d *demoRun) summarize(took time.Duration) {
	printer.Fprintf(d.out, "\n== Completed in %s. Objects deleted: %d. Owner references removed: %d. Finalizers removed: %d.\n",
		took.Round(100*time.Millisecond), d.counts[0], d.counts[1], d.counts[2])
}
