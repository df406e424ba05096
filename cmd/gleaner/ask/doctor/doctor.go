// Package doctor looks a Gleaner installation over: whether somebody collects
// garbage and only one, whether what is installed fits together, whether the
// operator has its rights, and what of its resources is not ready.
//
// Each finding says what to do. What could not be looked at is a finding as well,
// and never counts as being well. Nothing is written: the API server is asked for
// one dry run.
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

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/replicas"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/rights"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
)

// Severity is how bad a finding is.
type Severity string

// The severities, the worst first.
const (
	Problem Severity = "Problem" // something does not work, or will not
	Unknown Severity = "Unknown" // it could not be looked at
	Warning Severity = "Warning" // something to see to
	OK      Severity = "OK"
)

var rank = map[Severity]int{Problem: 0, Unknown: 1, Warning: 2, OK: 3}

// Finding is what a check came to.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	Do       string   `json:"do,omitempty"` // about it
}

// Report is all findings, the worst first.
type Report struct {
	At       metav1.Time `json:"at"`
	Findings []Finding   `json:"findings"`
	Problems int         `json:"problems"`
	Unknown  int         `json:"unknown"`
	Warnings int         `json:"warnings"`

	// Blind says that the operator could not be looked for: that no problem was found does
	// not mean that it works.
	Blind bool `json:"blind,omitempty"`
}

// Question is what is looked over.
type Question struct {
	Config   *rest.Config
	Gleaner  client.Reader // of Gleaner's resources
	Operator replicas.Where
	Version  string // of who asks
	Holds    bool   // look for holds that nobody governs, which lists everything
	Told     func(doing string)
}

// patient is what the checks look at: what several of them need is read once.
type patient struct {
	Question
	kube       kubernetes.Interface
	extensions apiextensions.Interface
	aggregator aggregator.Interface

	pods    []corev1.Pod
	podsErr error
	blind   bool // see Report.Blind
	health  []replicas.Health
	askErr  error // none of the replicas could be asked
	book    *whose.Book
	setup   rights.Setup
	mode    bool // how the operator runs is known
}

// checks are made in this order.
var checks = []struct {
	name string
	look func(*patient, context.Context) []Finding
}{
	{"API server", (*patient).server},
	{"clock", (*patient).clock},
	{"garbage collection", (*patient).garbageCollection},
	{"aggregated APIs", (*patient).services},
	{"types", (*patient).types},
	{"operator", (*patient).operator},
	{"lease", (*patient).lease},
	{"rights", (*patient).rights},
	{"storage migration", (*patient).migration},
	{"admission", (*patient).admission},
	{"webhook", (*patient).webhook},
	{"others' webhooks", (*patient).strangers},
	{"policies", (*patient).policies},
	{"modules", (*patient).modules},
	{"finalizers", (*patient).finalizers},
	{"holds", (*patient).holds},
}

// Look looks everything over.
func Look(ctx context.Context, q Question) (Report, error) {
	p := &patient{Question: q}
	if err := p.connect(); err != nil {
		return Report{}, err
	}
	p.tell("asking the operator")
	p.reach(ctx)
	p.book = whose.Read(ctx, q.Gleaner)
	r := Report{At: metav1.Now()}
	for _, c := range checks {
		p.tell("looking at: " + c.name)
		found := c.look(p, ctx)
		for _, f := range found {
			f.Check = c.name
			r.Findings = append(r.Findings, f)
		}
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
	}
	r.Blind = p.blind
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

func (p *patient) tell(doing string) {
	if p.Told != nil {
		p.Told(doing)
	}
}

func (p *patient) connect() (err error) {
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

// reach finds the operator, asks its replicas how they are, and finds out how it runs.
func (p *patient) reach(ctx context.Context) {
	p.pods, p.podsErr = replicas.Pods(ctx, p.Operator)
	p.setup = rights.SetupOf(p.pods)
	all, err := replicas.Find(ctx, p.Operator)
	if err != nil {
		p.askErr = err
		return
	}
	defer replicas.Close(all)
	p.health = replicas.HealthOf(ctx, all)
	p.mode = len(p.pods) != 0
	for _, h := range p.health {
		if h.Err == nil && h.Status.Collector != "" {
			p.setup.Companion, p.mode = h.Status.Collector == "companion", true
		}
	}
}

func ok(format string, args ...any) []Finding {
	return []Finding{{Severity: OK, Message: fmt.Sprintf(format, args...)}}
}

func unknown(do, format string, args ...any) Finding {
	return Finding{Severity: Unknown, Message: fmt.Sprintf(format, args...), Do: do}
}

func problem(do, format string, args ...any) Finding {
	return Finding{Severity: Problem, Message: fmt.Sprintf(format, args...), Do: do}
}

func warning(do, format string, args ...any) Finding {
	return Finding{Severity: Warning, Message: fmt.Sprintf(format, args...), Do: do}
}

// orOK is what was found, or that all is well.
func orOK(found []Finding, format string, args ...any) []Finding {
	if len(found) == 0 {
		return ok(format, args...)
	}
	return found
}

// rounded is a time that is good to look at.
func rounded(d time.Duration) time.Duration { return d.Round(time.Second) }
