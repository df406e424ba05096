// Package doctor checks a Gleaner installation: that exactly one garbage collector is
// running, that the installed components fit together, that the operator has its
// permissions, and that its resources are ready.
//
// Each finding includes what to do. A check that could not be made is also a finding, and
// never counts as passed. Nothing is changed: one delete is sent to the API server as a dry
// run.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/permissions"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
)

// Severity is the severity of a finding.
type Severity string

// The severities, from worst to best.
const (
	Problem Severity = "Problem" // something does not work, or will fail
	Unknown Severity = "Unknown" // the check could not be made
	Warning Severity = "Warning" // something needs attention
	OK      Severity = "OK"
)

var rank = map[Severity]int{Problem: 0, Unknown: 1, Warning: 2, OK: 3}

// Finding is a result of a check.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	Advice   string   `json:"do,omitempty"` // what to do about it
}

// Report contains all findings, sorted by severity.
type Report struct {
	At       metav1.Time `json:"at"`
	Findings []Finding   `json:"findings"`
	Problems int         `json:"problems"`
	Unknown  int         `json:"unknown"`
	Warnings int         `json:"warnings"`

	// OperatorUnknown means that the operator's pods could not be listed, so that the absence of problems
	// does not mean that it works.
	OperatorUnknown bool `json:"blind,omitempty"`
}

// Options configures the checks.
type Options struct {
	Config   *rest.Config
	Gleaner  client.Reader // of Gleaner's resources
	Operator replicas.Options
	Version  string // of the command
	Holds    bool   // check for holds that no policy governs, which lists all objects
	Progress func(doing string)
}

// checker is the installation that is checked, with the data that several checks use.
type checker struct {
	Options
	kube       kubernetes.Interface
	extensions apiextensions.Interface
	aggregator aggregator.Interface

	pods            []corev1.Pod
	podsErr         error
	operatorUnknown bool // see Report.Blind
	health          []replicas.Health
	queryErr        error // no replica could be queried
	resources       *finalizers.Resources
	setup           permissions.Setup
	modeKnown       bool // the mode of the operator is known
}

// checks are run in this order.
var checks = []struct {
	name string
	look func(*checker, context.Context) []Finding
}{
	{"API server", (*checker).server},
	{"clock", (*checker).clock},
	{"garbage collection", (*checker).garbageCollection},
	{"aggregated APIs", (*checker).aggregatedAPIs},
	{"custom resource definitions", (*checker).definitions},
	{"operator", (*checker).operator},
	{"lease", (*checker).lease},
	{"permissions", (*checker).permissions},
	{"storage migration", (*checker).migration},
	{"admission", (*checker).admission},
	{"webhook", (*checker).webhook},
	{"other webhooks", (*checker).otherWebhooks},
	{"policies", (*checker).policies},
	{"modules", (*checker).modules},
	{"finalizers", (*checker).finalizers},
	{"archive policies", (*checker).archives},
	{"retention policies", (*checker).retentions},
	{"pauses", (*checker).pauses},
	{"deletion budgets", (*checker).budgets},
	{"holds", (*checker).holds},
}

// Run runs all checks.
func Run(ctx context.Context, q Options) (Report, error) {
	p := &checker{Options: q}
	if err := p.connect(); err != nil {
		return Report{}, err
	}
	p.progress("Querying the operator")
	p.queryOperator(ctx)
	p.resources = finalizers.Read(ctx, q.Gleaner)
	r := Report{At: metav1.Now()}
	for _, c := range checks {
		p.progress("Checking " + c.name)
		found := c.look(p, ctx)
		for _, f := range found {
			f.Check = c.name
			r.Findings = append(r.Findings, f)
		}
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
	}
	r.OperatorUnknown = p.operatorUnknown
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	for _, f := range r.Findings {
		switch f.Severity {
		case Problem:
			r.Problems++
		case Unknown:
			r.Unknown++
		case Warning:
			r.Warnings++
		default:
		}
	}
	return r, nil
}

func (p *checker) progress(doing string) {
	if p.Progress != nil {
		p.Progress(doing)
	}
}

func (p *checker) connect() (err error) {
	if p.kube, err = kubernetes.NewForConfig(p.Config); err == nil {
		p.extensions, err = apiextensions.NewForConfig(p.Config)
	}
	if err == nil {
		p.aggregator, err = aggregator.NewForConfig(p.Config)
	}
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return nil
}

// queryOperator finds the operator, queries the health of its replicas, and detects its mode.
func (p *checker) queryOperator(ctx context.Context) {
	p.pods, p.podsErr = replicas.Pods(ctx, p.Operator)
	p.setup = permissions.SetupOf(p.pods)
	all, err := replicas.Find(ctx, p.Operator)
	if err != nil {
		p.queryErr = err
		return
	}
	defer replicas.Close(all)
	p.health = replicas.QueryHealth(ctx, all)
	p.modeKnown = len(p.pods) != 0
	for _, h := range p.health {
		if h.Err == nil && h.Status.Collector != "" {
			p.setup.Companion, p.modeKnown = h.Status.Collector == "companion", true
		}
	}
}

func ok(format string, args ...any) []Finding {
	return []Finding{{Severity: OK, Message: fmt.Sprintf(format, args...)}}
}

func unknown(do, format string, args ...any) Finding {
	return Finding{Severity: Unknown, Message: fmt.Sprintf(format, args...), Advice: do}
}

func problem(do, format string, args ...any) Finding {
	return Finding{Severity: Problem, Message: fmt.Sprintf(format, args...), Advice: do}
}

func warning(do, format string, args ...any) Finding {
	return Finding{Severity: Warning, Message: fmt.Sprintf(format, args...), Advice: do}
}

// findingsOrOK returns the findings, or an OK finding if there are none.
func findingsOrOK(found []Finding, format string, args ...any) []Finding {
	if len(found) == 0 {
		return ok(format, args...)
	}
	return found
}

// roundSeconds rounds a duration for display.
func roundSeconds(d time.Duration) time.Duration { return d.Round(time.Second) }
