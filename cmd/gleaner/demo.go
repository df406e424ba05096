package main

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

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/record"
)

const (
	demoNamespace = "demo"
	demoReplicas  = 3
	demoPatience  = 60 * time.Second
	demoPoll      = 50 * time.Millisecond
	demoSilence   = 5 * time.Second // until it is said what is waited for
)

func demoCommand() *cobra.Command {
	var beside bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show what Gleaner does, on a control plane of its own",
		Long: "Start a real control plane on this machine and Gleaner as its garbage collector, delete a Deployment in\n" +
			"background, in foreground and orphaning, then apply policies in Rego and in Go and delete things again, and have\n" +
			"a finalizer in Go remove a bucket from a real S3 server. Show what is collected and why.\n\n" +
			"It exits with 0 if all of it went as it should, and with 1 and the reason if not.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), modeOf(beside), cmd.OutOrStdout())
		},
	}
	addCompanion(cmd.Flags(), &beside)
	return cmd
}

func demo(ctx context.Context, mode string, out io.Writer) error {
	var controlPlane devcluster.Options // complete
	if mode == companion {
		kubectl.Fprintln(out, "== A control plane whose kube-controller-manager runs everything, its garbage collector as well")
	} else {
		kubectl.Fprintln(out, "== A control plane with the controllers of Deployments, ReplicaSets, namespaces, service accounts and claims, and no garbage collector but Gleaner")
		controlPlane.BasicControllers = true // kube-controller-manager takes a minute more to build
	}
	s, err := startStage(ctx, mode, controlPlane, out, logr.Discard())
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(s.cluster.RESTConfig())
	if err != nil {
		return s.stop(err)
	}
	d := &demonstration{stage: s, out: out, client: client, told: map[string]bool{}, silence: demoSilence}
	d.news = d.tell
	if d.builds, err = newBuilds(ctx); err != nil {
		return s.stop(err)
	}
	defer d.builds.stop()
	began := time.Now()
	if mode == companion {
		err = d.play(ctx, d.companionActs())
	} else {
		err = d.play(ctx, d.acts())
	}
	if err == nil {
		d.summarize(time.Since(began))
	}
	return s.stop(err)
}

// demonstration is the demo's play on a stage.
type demonstration struct {
	*stage
	out     io.Writer
	client  kubernetes.Interface
	builds  *builds
	silence time.Duration   // after which it is said what is waited for
	news    func()          // what Gleaner has decided meanwhile
	told    map[string]bool // records that were shown
	counts  [3]int          // deletes, references dropped, finalizers removed
}

// act is one thing that is shown.
type act struct {
	name string
	play func(context.Context) error
}

func (d *demonstration) acts() []act {
	return []act{
		{"Is any other collector alive? A canary is let out to see", d.canary},
		{"Background: kubectl delete deployment", d.firstDeletion},
		{"Foreground: the owner goes last", d.foreground},
		{"Orphan: the dependents stay", d.orphan},
		{"A policy in Rego, in Monitor: it says what it would do, and changes nothing", d.monitor},
		{"The same policy, in Enforce: what has the label stays", d.enforce},
		{"A policy in Go, built to WebAssembly: the claim with the label stays", d.wasm},
		{"A finalizer in Go: a real bucket goes before the object that stands for it", d.bucket},
	}
}

func (d *demonstration) play(ctx context.Context, acts []act) error {
	for _, act := range acts {
		kubectl.Fprintf(d.out, "\n== %s\n", act.name)
		if err := act.play(ctx); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(act.name), err)
		}
	}
	return nil
}

func (d *demonstration) canary(ctx context.Context) error {
	if err := d.until(ctx, func() error {
		if status := d.collector.Show().Status(); !status.Collecting {
			return fmt.Errorf("not collecting: %s", status.Message)
		}
		return nil
	}); err != nil {
		return err
	}
	kubectl.Fprintln(d.out, "None is: Gleaner is the collector.")
	return d.kubectl(ctx, "create", "namespace", demoNamespace)
}

// firstDeletion comes before anything is built that it does not need.
func (d *demonstration) firstDeletion(ctx context.Context) error {
	if err := d.background(ctx); err != nil {
		return err
	}
	d.builds.begin()
	return nil
}

func (d *demonstration) background(ctx context.Context) error {
	if err := d.deployment(ctx, "background"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "delete", "deployment", "background", "-n", demoNamespace); err != nil {
		return err
	}
	return d.until(ctx, func() error { return d.left(ctx, "background", 0, 0) })
}

func (d *demonstration) foreground(ctx context.Context) error {
	if err := d.deployment(ctx, "foreground"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "delete", "deployment", "foreground", "-n", demoNamespace, "--cascade=foreground"); err != nil {
		return err
	}
	if err := d.until(ctx, func() error { return d.left(ctx, "foreground", 0, 0) }); err != nil {
		return err
	}
	return d.ownersLast("foreground")
}

// ownersLast makes sure that, by the records, Pods went before their
// ReplicaSet was let go, and that before the Deployment.
func (d *demonstration) ownersLast(app string) error {
	rank, last := map[string]int{"Pod": 1, "ReplicaSet": 2, "Deployment": 3}, 0
	for _, e := range d.collector.Records("") {
		final := e.Object.Kind == "Pod" && e.Action == record.Delete || e.Action == record.RemoveFinalizer
		if !strings.HasPrefix(e.Object.Name, app) || !final || e.Result != "Done" {
			continue
		}
		if rank[e.Object.Kind] < last {
			return fmt.Errorf("%s went after what owns it", e.Object)
		}
		last = rank[e.Object.Kind]
	}
	if last != rank["Deployment"] {
		return fmt.Errorf("no record shows that the Deployment was let go")
	}
	return nil
}

func (d *demonstration) orphan(ctx context.Context) error {
	if err := d.deployment(ctx, "orphan"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "delete", "deployment", "orphan", "-n", demoNamespace, "--cascade=orphan"); err != nil {
		return err
	}
	if err := d.until(ctx, func() error { return d.left(ctx, "orphan", 1, demoReplicas) }); err != nil {
		return err
	}
	return d.kubectl(ctx, "get", "replicasets,pods", "-n", demoNamespace, "-l", "app=orphan")
}

// deployment makes a Deployment, and waits for its controllers to have made
// the rest.
func (d *demonstration) deployment(ctx context.Context, name string) error {
	err := d.kubectl(ctx, "create", "deployment", name, "-n", demoNamespace, "--image=registry.k8s.io/pause:3.10", fmt.Sprintf("--replicas=%d", demoReplicas))
	if err != nil {
		return err
	}
	err = d.until(ctx, func() error {
		sets, pods, err := d.list(ctx, name)
		if err != nil {
			return err
		}
		if len(sets) != 1 || len(pods) != demoReplicas {
			return fmt.Errorf("its controllers have made %d ReplicaSets and %d Pods", len(sets), len(pods))
		}
		return nil
	})
	if err == nil {
		kubectl.Fprintf(d.out, "  Its controllers have made 1 ReplicaSet and %d Pods.\n", demoReplicas)
	}
	return err
}

// left reports whether the Deployment is gone, and just so many ReplicaSets,
// without owners, and Pods are left of it.
func (d *demonstration) left(ctx context.Context, name string, wantSets, wantPods int) error {
	deployments, err := d.client.AppsV1().Deployments(demoNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return err
	}
	sets, pods, err := d.list(ctx, name)
	if err != nil {
		return err
	}
	if len(deployments.Items) != 0 || len(sets) != wantSets || len(pods) != wantPods {
		return fmt.Errorf("left are %d Deployments, %d ReplicaSets and %d Pods; there should be 0, %d and %d",
			len(deployments.Items), len(sets), len(pods), wantSets, wantPods)
	}
	for _, set := range sets {
		if len(set.OwnerReferences) != 0 {
			return fmt.Errorf("ReplicaSet %s still names its owner", set.Name)
		}
	}
	return nil
}

func (d *demonstration) list(ctx context.Context, name string) ([]appsv1.ReplicaSet, []corev1.Pod, error) {
	options := metav1.ListOptions{LabelSelector: "app=" + name}
	sets, err := d.client.AppsV1().ReplicaSets(demoNamespace).List(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	pods, err := d.client.CoreV1().Pods(demoNamespace).List(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	return sets.Items, pods.Items, nil
}

// until shows what Gleaner decides as it happens, until check is content.
func (d *demonstration) until(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	tick, quiet := time.NewTicker(demoPoll), time.NewTicker(d.silence)
	defer tick.Stop()
	defer quiet.Stop()
	for {
		err := check()
		d.news()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", demoPatience, err)
		case err := <-d.done:
			d.done <- nil
			return fmt.Errorf("the collector ended: %w", err)
		case <-quiet.C:
			kubectl.Fprintf(d.out, "  Waiting: %s\n", err)
		case <-tick.C:
		}
	}
}

// tell shows the records that were not shown yet.
func (d *demonstration) tell() {
	for _, e := range d.collector.Records("") {
		key, err := json.Marshal(e)
		if err != nil || d.told[string(key)] || e.Action == record.None || e.Object.Namespace != demoNamespace {
			continue
		}
		d.told[string(key)] = true
		kubectl.Fprintf(d.out, "  %s\n", e)
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
		default: // nothing that is counted
		}
	}
}

func (d *demonstration) kubectl(ctx context.Context, args ...string) error {
	kubectl.Fprintf(d.out, "$ kubectl %s\n", strings.Join(args, " "))
	type answer struct {
		text string
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		text, err := d.cluster.Kubectl(ctx, args...)
		done <- answer{text, err}
	}()
	tick, quiet := time.NewTicker(demoPoll), time.NewTicker(d.silence)
	defer tick.Stop()
	defer quiet.Stop()
	for {
		select {
		case <-quiet.C:
			kubectl.Fprintln(d.out, "  Waiting for kubectl")
		case a := <-done:
			d.tell()
			for line := range strings.Lines(a.text) {
				kubectl.Fprintf(d.out, "  %s\n", kubectl.Safe(strings.TrimSuffix(line, "\n"))) // kubectl has made it fit for a terminal
			}
			return a.err
		case <-tick.C:
			d.tell()
		}
	}
}

func (d *demonstration) summarize(took time.Duration) {
	kubectl.Fprintf(d.out, "\n== All as it should be, in %s. Objects deleted: %d. References dropped: %d. Owners let go after their dependents: %d.\n",
		took.Round(100*time.Millisecond), d.counts[0], d.counts[1], d.counts[2])
}
