package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/devcluster/s3server"
)

// restored is the number of objects that are restored.
const restored = 1000

// archived is a way to archive what a cascade deletes.
type archived struct {
	name   string
	policy *v1alpha1.ClusterArchivePolicy // nil: there is no archive
	inS3   bool
}

// archivePolicy returns a policy that archives the objects of a resource in the core group.
func archivePolicy(resource string, deletedBy v1alpha1.DeletedBy, recipients ...string) *v1alpha1.ClusterArchivePolicy {
	p := &v1alpha1.ClusterArchivePolicy{ObjectMeta: metav1.ObjectMeta{Name: "bench"}}
	p.Spec.Resources = []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: []string{resource}}}
	p.Spec.DeletedBy, p.Spec.Recipients = deletedBy, recipients
	return p
}

// archive measures the cost of archiving, and of restoring.
func (f archiveBench) archive(ctx context.Context, r *report, b budget) error {
	c, err := f.define(ctx)
	if err != nil {
		return err
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gleaner-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := s3server.Start(ctx, dir, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	if answer, err := server.Request(ctx, http.MethodPut, "/bench", ""); err != nil || answer.Status != http.StatusOK {
		return fmt.Errorf("create bucket: %v, %w", answer, err)
	}
	gleaner, anyone := v1alpha1.DeletedByGleaner, v1alpha1.DeletedByAnyone
	variants := []archived{
		{name: "no archive"},
		{"in a folder, and nothing is selected", archivePolicy("services", gleaner), false},
		{"in a folder", archivePolicy("configmaps", gleaner), false},
		{"in a folder, encrypted", archivePolicy("configmaps", gleaner, identity.Recipient().String()), false},
		{"in a folder, and each object is held", archivePolicy("configmaps", anyone), false},
		{"in S3", archivePolicy("configmaps", gleaner), true},
		{"in S3, and each object is held", archivePolicy("configmaps", anyone), true},
	}
	rates := map[string][]float64{}
	for round := range f.rounds {
		for i, v := range variants {
			perSecond, err := f.measureArchived(ctx, c, v, filepath.Join(dir, fmt.Sprintf("archive-%d-%d", round, i)), server, b)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			progress("background, archive: %s: %.0f objects/s", v.name, perSecond)
			rates[v.name] = append(rates[v.name], perSecond)
		}
	}
	none := median(rates[variants[0].name])
	for _, v := range variants {
		r.note("background, objects/s, archive: %s: %.0f (%.0f %% of no archive)", v.name, median(rates[v.name]), 100*median(rates[v.name])/none)
	}
	return f.restore(ctx, c, r, b, filepath.Join(dir, "restore"))
}

// collector returns a collector with the archive of a variant.
func (f archiveBench) collector(v archived, dir string, server *s3server.Server) *gleanerProcess {
	g := &gleanerProcess{cluster: f.cluster, binary: f.binary, pprof: f.pprof}
	switch {
	case v.inS3:
		g.more = []string{"--archive=s3://bench/" + filepath.Base(dir)}
		g.env = append(os.Environ(), "AWS_ENDPOINT_URL_S3="+server.URL, "AWS_REGION="+server.Region, "AWS_ACCESS_KEY_ID="+server.AccessKey,
			"AWS_SECRET_ACCESS_KEY="+server.SecretKey, "AWS_CA_BUNDLE="+dir+".crt")
	case v.policy != nil:
		g.more = []string{"--archive=file://" + dir}
	}
	return g
}

// measureArchived measures one collection that is archived.
func (f archiveBench) measureArchived(ctx context.Context, c client.Client, v archived, dir string, server *s3server.Server, b budget) (perSecond float64, err error) {
	if err := os.WriteFile(dir+".crt", server.CA, 0o600); err != nil {
		return 0, err
	}
	g := f.collector(v, dir, server)
	err = f.withArchivePolicy(ctx, c, v.policy, g, b, func() error {
		if _, _, err := f.once(ctx, warmUp, metav1.DeletePropagationBackground); err != nil {
			return err
		}
		perSecond, _, err = f.once(ctx, f.objects, metav1.DeletePropagationBackground)
		return err
	})
	return perSecond, err
}

// withArchivePolicy runs a collector while do runs, which is called once a policy is in force. Then
// it deletes the policy.
func (f archiveBench) withArchivePolicy(ctx context.Context, c client.Client, p *v1alpha1.ClusterArchivePolicy, g contender, b budget, do func() error) error {
	if p == nil {
		return f.with(ctx, g, b, do)
	}
	p = p.DeepCopy()
	if err := c.Create(ctx, p); err != nil {
		return err
	}
	return f.with(ctx, g, b, func() error {
		err := until(ctx, func() error { return archiving(ctx, c, p) })
		if err == nil {
			err = do()
		}
		return errors.Join(err, c.Delete(ctx, p), until(ctx, func() error {
			err := c.Get(ctx, client.ObjectKeyFromObject(p), p)
			if err == nil {
				return fmt.Errorf("policy %s still exists", p.Name)
			}
			return client.IgnoreNotFound(err)
		}))
	})
}

func archiving(ctx context.Context, c client.Client, p *v1alpha1.ClusterArchivePolicy) error {
	if err := c.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
		return err
	}
	wanted := []string{v1alpha1.ConditionArchiving}
	if p.Spec.DeletedBy == v1alpha1.DeletedByAnyone {
		wanted = append(wanted, v1alpha1.ConditionAttached)
	}
	for _, condition := range wanted {
		if !meta.IsStatusConditionTrue(p.Status.Conditions, condition) {
			return fmt.Errorf("policy %s is not %s: %v", p.Name, condition, p.Status.Conditions)
		}
	}
	return nil
}

// restore measures how long it takes to restore objects, compared with kubectl apply of the same
// objects.
func (f archiveBench) restore(ctx context.Context, c client.Client, r *report, b budget, dir string) error {
	var restoring, applying []float64
	for round := range f.rounds {
		location := fmt.Sprintf("file://%s-%d", dir, round)
		began := time.Now()
		g := &gleanerProcess{cluster: f.cluster, binary: f.binary, pprof: f.pprof, more: []string{"--archive=" + location}}
		err := f.withArchivePolicy(ctx, c, archivePolicy("configmaps", v1alpha1.DeletedByGleaner), g, b, func() error {
			_, _, err := f.once(ctx, restored, metav1.DeletePropagationBackground)
			return err
		})
		if err != nil {
			return err
		}
		selected := []string{"--archive=" + location, "--since=" + time.Since(began).Round(time.Second).String()}
		exported, err := f.run(ctx, f.binary, append([]string{"archive", "export", "-A", "--to=-"}, selected...)...)
		if err != nil {
			return err
		}
		files := fmt.Sprintf("%s-%d.yaml", dir, round)
		if err := os.WriteFile(files, exported, 0o600); err != nil {
			return err
		}
		started := time.Now()
		if _, err := f.run(ctx, f.binary, append([]string{"restore", "-A", "--drop-owners", "--yes"}, selected...)...); err != nil {
			return err
		}
		restoring = append(restoring, time.Since(started).Seconds())
		if _, err := f.run(ctx, f.cluster.KubectlPath(), "delete", "-f", files, "--wait=false", "--cascade=orphan"); err != nil {
			return err
		}
		started = time.Now()
		if _, err := f.run(ctx, f.cluster.KubectlPath(), "apply", "-f", files); err != nil {
			return err
		}
		applying = append(applying, time.Since(started).Seconds())
		progress("restore of %d objects: %.1f s, kubectl apply: %.1f s", restored, restoring[round], applying[round])
		if _, err := f.run(ctx, f.cluster.KubectlPath(), "delete", "-f", files, "--wait=false", "--cascade=orphan"); err != nil {
			return err
		}
	}
	r.note("seconds to restore %d objects: %.1f, kubectl apply of the same: %.1f (%.0f %%)", restored, median(restoring), median(applying), 100*median(restoring)/median(applying))
	return nil
}

// run runs a program as the administrator, and returns what it prints.
func (f archiveBench) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	var out, failure bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+f.cluster.Kubeconfig(), "KUBECACHEDIR="+f.cluster.KubectlCache())
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %v: %w: %s", filepath.Base(program), args, err, failure.String())
	}
	return out.Bytes(), nil
}
