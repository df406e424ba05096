package ui

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/explain"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/history"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/pause"
	"github.com/gleaner-dev/gleaner/internal/cli/replay"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/internal/cli/stuck"
	"github.com/gleaner-dev/gleaner/internal/cli/test"
	"github.com/gleaner-dev/gleaner/internal/ui/page"
	"github.com/gleaner-dev/gleaner/internal/ui/server"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

const (
	maxNamespaces = 5000             // to select from
	namespacesFor = 15 * time.Second // for which their names are taken as read
	listPage      = 500
)

// cluster reads pages of a cluster, with the permissions of a user.
type cluster struct {
	config   *rest.Config
	mapper   meta.RESTMapper
	archive  *entries.Flags
	gleaner  client.Client
	kube     kubernetes.Interface
	objects  dynamic.Interface
	operator *operator
	surveys  *surveys
	fallback string // namespace that is read if not all can be

	mu     sync.Mutex // covers what follows
	names  []string   // of namespaces
	listed time.Time
}

func newCluster(config *rest.Config, mapper meta.RESTMapper, from *entries.Flags, namespace string) (*cluster, error) {
	config.WarningHandlerWithContext = rest.NoWarnings{} // of types that are old: all are listed
	c := &cluster{config: config, mapper: mapper, archive: from, operator: newOperator(from.Operator(config)), fallback: namespace}
	c.surveys = newSurveys(c.read)
	var err error
	if c.gleaner, err = finalizers.NewClient(config); err != nil {
		return nil, err
	}
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	if c.objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

// sources returns what pages read.
func (c *cluster) sources(from, namespace string) *server.Sources {
	return &server.Sources{
		From: from, Namespace: namespace, Namespaces: c.namespaces, Graph: c.surveys.graph, Preview: c.preview, Stuck: c.stuck, Object: c.object,
		Records: c.records, Now: c.now, Resources: c.resources, Governed: c.surveys.governed, Decision: c.decision, TestCase: c.testCase, Replay: c.replay, Archive: c.entries, Archived: c.entry,
		Actions: server.Actions{Pause: c.pause, Resume: c.resume, Restore: c.restore},
	}
}

// read reads the objects of a namespace, or of all.
func (c *cluster) read(ctx context.Context, namespace string) (*input.Input, error) {
	s, err := survey.Live(ctx, survey.Options{Config: c.config, Namespace: namespace, Fallback: c.fallback, Now: time.Now, Progress: func(int, int) {}})
	return &input.Input{Config: c.config, Namespace: namespace, Survey: s}, err
}

// namespaces returns those that the user may list, which pages that change by themselves need each time.
func (c *cluster) namespaces(ctx context.Context) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.listed) > namespacesFor {
		c.names, c.listed = c.listNamespaces(ctx), time.Now()
	}
	return c.names
}

func (c *cluster) listNamespaces(ctx context.Context) (names []string) {
	list, err := c.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: maxNamespaces})
	if err != nil {
		return nil // without permission, they are written in the address
	}
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}

func (c *cluster) preview(ctx context.Context, namespace string, uid types.UID, cascade string) (*page.Preview, error) {
	a, err := c.read(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return previewOf(ctx, a, uid, cascade)
}

func (c *cluster) stuck(ctx context.Context, namespace string, longerThan time.Duration) (stuck.Report, error) {
	return stuck.Find(ctx, stuck.Options{Config: c.config, Gleaner: c.gleaner, Namespace: namespace, LongerThan: longerThan})
}

// mapping returns the type that a word names.
func (c *cluster) mapping(word string) (*meta.RESTMapping, error) {
	return kubectl.ServedMapping(c.mapper, word)
}

func (c *cluster) object(ctx context.Context, kind, namespace, name string, uid types.UID) (explain.Explanation, error) {
	q, err := explain.QueryOf(ctx, c.config, c.mapping, kind, namespace, name)
	if err != nil {
		return explain.Explanation{}, err
	}
	q.UID, q.Records = uid, c.records
	return explain.Explain(ctx, q)
}

// resources returns Gleaner's resources, of all kinds that are served and that the user may list.
func (c *cluster) resources(ctx context.Context) (all []*unstructured.Unstructured, installed bool, unread []string, err error) {
	served, err := discovery.NewDiscoveryClient(c.kube.Discovery().RESTClient()).ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	if err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, false, nil, nil
		}
		return nil, false, nil, fmt.Errorf("read which types are served: %w", err)
	}
	for _, r := range served.APIResources {
		if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") {
			continue
		}
		list, err := c.objects.Resource(v1alpha1.GroupVersion.WithResource(r.Name)).List(ctx, metav1.ListOptions{Limit: listPage})
		if err != nil {
			unread = append(unread, r.Name+": "+err.Error())
			continue
		}
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
		if list.GetContinue() != "" {
			unread = append(unread, fmt.Sprintf("%s: only the first %d are shown", r.Name, listPage))
		}
	}
	return all, true, unread, nil
}

func (c *cluster) now(ctx context.Context) (page.Now, error) {
	n := c.operator.now(ctx)
	book := finalizers.ReadLimits(ctx, c.gleaner)
	n.Unread, n.PausesKnown = append(n.Unread, book.Unread...), len(book.Unread) == 0
	for _, p := range book.Pauses {
		inForce := meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionInForce)
		n.Pauses = append(n.Pauses, page.PauseState{Kind: kindOf(p.GetNamespace()), Namespace: p.GetNamespace(), Name: p.GetName(), Text: pauseText(*p.Spec), InForce: inForce})
	}
	for _, b := range book.Budgets {
		r := page.Resource{Kind: b.Kind(), Namespace: b.GetNamespace(), Name: b.GetName(), Conditions: b.Status.Conditions}
		r.Facts = []page.Fact{
			{Name: "used", Value: fmt.Sprintf("%d of %d", b.Status.Used, b.Status.Allowed)}, {Name: "waiting", Value: fmt.Sprint(b.Status.Waiting)},
		}
		n.Budgets = append(n.Budgets, r)
	}
	return n, ctx.Err()
}

func kindOf(namespace string) string {
	if namespace == "" {
		return v1alpha1.KindClusterPause
	}
	return v1alpha1.KindPause
}

// pauseText returns what a pause stops, until when and why.
func pauseText(s v1alpha1.PauseSpec) string {
	text := "everything"
	if s.Policy != nil {
		text = "what " + s.Policy.Kind + " " + s.Policy.Name + " decides"
	}
	if s.Until != nil {
		text += " until " + s.Until.UTC().Format(time.RFC3339)
	}
	return text + ": " + cmp.Or(s.Reason, "without a reason")
}

func (c *cluster) pause(ctx context.Context, namespace, reason string, lasts time.Duration) (string, error) {
	return pause.Begin(ctx, c.gleaner, namespace, reason, lasts)
}

func (c *cluster) resume(ctx context.Context, namespace, name string) (string, error) {
	return pause.End(ctx, c.gleaner, namespace, name)
}

// records reads records: of the operator, or of the archive that a flag names.
func (c *cluster) records(ctx context.Context, s replicas.Selection) (replicas.Records, error) {
	if c.archive.Location() == "" {
		return c.operator.records(ctx, s)
	}
	return history.Read(ctx, c.archive, func() (*rest.Config, error) { return c.config, nil }, s)
}

// decision returns the record of a decision with what its modules got.
func (c *cluster) decision(ctx context.Context, uid types.UID, at time.Time) (record.Entry, error) {
	found, err := c.records(ctx, replicas.Selection{
		Query: record.Query{Object: record.ObjectQuery{UID: uid}}, Since: at, Before: at.Add(time.Nanosecond), Exchanges: true,
	})
	switch {
	case err != nil:
		return record.Entry{}, err
	case len(found.Entries) == 0:
		return record.Entry{}, fmt.Errorf("the records no longer have the decision about the object with UID %s at %s", uid, at.Format(time.RFC3339Nano))
	}
	return found.Entries[0], nil
}

func (c *cluster) testCase(ctx context.Context, uid types.UID, at time.Time) (string, []byte, error) {
	e, err := c.decision(ctx, uid, at)
	if err != nil {
		return "", nil, err
	}
	data, err := test.CasesOf(e)
	return "gleaner_test.yaml", data, err
}

// replay replays a decision with a module, which is written to a file, as the command reads it.
func (c *cluster) replay(ctx context.Context, uid types.UID, at time.Time, name string, module []byte) (string, error) {
	e, err := c.decision(ctx, uid, at)
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("", "gleaner-replay-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file := filepath.Join(folder, "module.wasm")
	if strings.HasSuffix(name, ".rego") {
		file = filepath.Join(folder, "module.rego")
	}
	if err := os.WriteFile(file, module, 0o600); err != nil {
		return "", err
	}
	return replay.Text(ctx, e, file)
}
