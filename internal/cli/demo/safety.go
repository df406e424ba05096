package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
)

// pause stops a cascade, and lets it continue.
func (d *demoRun) pause(ctx context.Context) error {
	const name = "paused"
	if err := d.deployment(ctx, name); err != nil {
		return err
	}
	if err := d.gleaner(ctx, []string{"Paused everything"}, "pause", "--reason", "finding out why", "--for", "1h"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "delete", "deployment", name, "-n", namespace); err != nil {
		return err
	}
	sets, _, err := d.list(ctx, name)
	if err != nil {
		return err
	}
	if len(sets) != 1 {
		return fmt.Errorf("%d ReplicaSets are left during the pause, want 1", len(sets))
	}
	if err := d.gleaner(ctx, []string{"it still exists", "finding out why"}, "explain", "replicaset/"+sets[0].Name, "-n", namespace); err != nil {
		return err
	}
	if err := d.checkRemainingPaused(ctx, name); err != nil {
		return err
	}
	if err := d.gleaner(ctx, []string{"Deleted"}, "resume"); err != nil {
		return err
	}
	return d.until(ctx, func() error { return d.checkRemaining(ctx, name, 0, 0) })
}

// checkRemainingPaused returns an error unless the dependents of a Deployment that is gone still exist.
func (d *demoRun) checkRemainingPaused(ctx context.Context, name string) error {
	sets, pods, err := d.list(ctx, name)
	if err == nil && (len(sets) != 1 || len(pods) != demoReplicas) {
		err = fmt.Errorf("%d ReplicaSets and %d Pods are left during the pause, want 1 and %d", len(sets), len(pods), demoReplicas)
	}
	return err
}

// mistaken is the Deployment that is deleted by mistake.
const mistaken = "shop"

// archivePolicy archives workloads before they are gone.
const archivePolicy = `apiVersion: gleaner.dev/v1alpha1
kind: ClusterArchivePolicy
metadata: {name: workloads}
spec:
  resources:
  - {apiGroups: [apps], resources: [deployments, replicasets]}
  - {apiGroups: [""], resources: [pods]}
`

// mistake deletes a Deployment, of which everything is archived.
func (d *demoRun) mistake(ctx context.Context) error {
	if err := d.apply(ctx, archivePolicy, true); err != nil {
		return err
	}
	for _, condition := range []string{"Archiving", "Attached"} {
		if err := d.kubectl(ctx, "wait", "--for=condition="+condition, "clusterarchivepolicy/workloads", "--timeout=60s"); err != nil {
			return err
		}
	}
	if err := d.deployment(ctx, mistaken); err != nil {
		return err
	}
	_, pods, err := d.list(ctx, mistaken)
	if err != nil {
		return err
	}
	d.pod = pods[0].Name
	if err := d.kubectl(ctx, "delete", "deployment", mistaken, "-n", namespace); err != nil {
		return err
	}
	return d.until(ctx, func() error { return d.checkRemaining(ctx, mistaken, 0, 0) })
}

// explainAfterRestart has Gleaner explain a deletion of which it has nothing in memory.
func (d *demoRun) explainAfterRestart(ctx context.Context) error {
	if err := d.Restart(d.program()); err != nil {
		return err
	}
	printer.Fprintln(d.out, "  Gleaner has ended, and runs again as another process.")
	// The records are in the archive, which the new process opens.
	return d.until(ctx, func() error {
		return d.gleaner(ctx, []string{"Gleaner deleted it at", "Deployment " + namespace + "/" + mistaken}, "explain", "pod/"+d.pod, "-n", namespace)
	})
}

// restore restores the Deployment. Its controllers make the rest.
func (d *demoRun) restore(ctx context.Context) error {
	if err := d.gleaner(ctx, []string{"restored"}, "restore", "deployment/"+mistaken, "-n", namespace, "--yes"); err != nil {
		return err
	}
	if err := d.until(ctx, func() error {
		sets, pods, err := d.list(ctx, mistaken)
		if err == nil && (len(sets) != 1 || len(pods) != demoReplicas) {
			err = fmt.Errorf("its controllers have created %d ReplicaSets and %d Pods", len(sets), len(pods))
		}
		return err
	}); err != nil {
		return err
	}
	return d.kubectl(ctx, "get", "deployments,replicasets,pods", "-n", namespace, "-l", "app="+mistaken)
}

// program returns the path of gleaner, which make build builds next to this program.
func (d *demoRun) program() string {
	self, err := os.Executable()
	if err != nil {
		return "gleaner"
	}
	return filepath.Join(filepath.Dir(self), "gleaner")
}

// gleaner runs a command of gleaner, and prints its output if that contains some texts.
func (d *demoRun) gleaner(ctx context.Context, wants []string, args ...string) error {
	cmd := exec.CommandContext(ctx, d.program(), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+d.Cluster.Kubeconfig(), replicas.EndpointVariable+"="+d.Endpoint())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("gleaner %s: %w: %s", strings.Join(args, " "), err, out)
	}
	for _, want := range wants {
		if !strings.Contains(string(out), want) {
			return fmt.Errorf("gleaner %s does not print %q: %s", strings.Join(args, " "), want, printer.OneLine(string(out)))
		}
	}
	printer.Fprintf(d.out, "$ gleaner %s\n", strings.Join(args, " "))
	for line := range strings.Lines(string(out)) {
		printer.Fprintf(d.out, "  %s\n", strings.TrimSuffix(line, "\n"))
	}
	return nil
}
