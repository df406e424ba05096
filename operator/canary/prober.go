package canary

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/gate"
)

const (
	// leaseInterval is how often kube-controller-manager's lease is read: another holder may
	// be another version, with another configuration.
	leaseInterval = 10 * time.Second

	// shutInterval is the interval between canaries while something is wrong that may end at
	// any moment, such as another collector in primary mode.
	shutInterval = time.Minute

	// retryInterval is the wait after a canary that has shown nothing.
	retryInterval = 5 * time.Second

	// verifyTimeout is how long a replica has to record that a canary was finalized.
	verifyTimeout = 2 * time.Second

	// minInstall is how long the API server has to use a new webhook before a canary is
	// created. It doubles with each canary that was not recorded.
	minInstall = 250 * time.Millisecond

	// maxCanaries bounds the canaries that are created to verify a new webhook, before that
	// is left to the next one that is created anyway.
	maxCanaries = 6
)

const (
	// Advice says what to do if another collector is running in primary mode.
	Advice = "start kube-controller-manager with --controllers=*,-garbage-collector-controller,-storage-version-migrator-controller " +
		"(leave --enable-garbage-collector as it is), or stop the other Gleaner"

	// CompanionAdvice says what to do if no other collector is running in companion mode.
	CompanionAdvice = "start kube-controller-manager with its garbage-collector-controller (and --enable-garbage-collector), " +
		"or run Gleaner with --collector=primary"
)

// ProberOptions configure a Prober. All fields but Companion are required.
type ProberOptions struct {
	Client    kubernetes.Interface
	Namespace string        // of canaries
	Timeout   time.Duration // how long another collector has to finalize a canary; 0: there is no probe
	Interval  time.Duration // between canaries
	DryRun    bool          // nothing is written, and no canary is created

	Gate      *gate.Gate
	Companion *companion.Companion // nil in primary mode

	// Own is called with the UID of each canary before it is deleted, so that this operator
	// ignores it.
	Own func(types.UID)

	Log logr.Logger
}

// Prober probes for another garbage collector while this replica leads, and sets the gate.
// Create it with NewProber.
type Prober struct {
	options ProberOptions

	installations int // of the companion's webhook, at the last look
	unfinished    int // consecutive canaries that were not finalized
}

// NewProber returns a Prober.
func NewProber(o ProberOptions) *Prober { return &Prober{options: o} }

// Run probes at once, then at each interval, when kube-controller-manager's lease changes
// hands, and in companion mode when the webhook was installed, until ctx ends.
func (p *Prober) Run(ctx context.Context) {
	if p.options.Companion != nil {
		p.open(ctx) // what policies ask for is done here, whatever collects the rest
	}
	if p.options.Timeout == 0 || p.options.DryRun {
		p.options.Log.Info("Probe for another garbage collector is disabled", "canaryTimeout", p.options.Timeout, "dryRun", p.options.DryRun)
		p.open(ctx)
		return
	}
	for ctx.Err() == nil {
		holder, known := p.holder(ctx)
		if !p.probe(ctx) {
			wait(ctx, retryInterval)
			continue
		}
		p.awaitReason(ctx, holder, known)
	}
}

// awaitReason waits until there is a reason for another probe.
func (p *Prober) awaitReason(ctx context.Context, holder string, known bool) {
	interval := p.options.Interval
	if c := p.options.Companion; p.options.Gate.State().Probe == gate.Shut || c != nil && (c.Presence() == companion.Missing || c.IsRefuted()) {
		interval = min(interval, shutInterval)
	}
	due := time.Now().Add(interval)
	for ctx.Err() == nil && time.Now().Before(due) {
		if p.awaitInstallation(ctx, min(leaseInterval, interval)) {
			p.verify(ctx)
			return
		}
		now, ok := p.holder(ctx)
		if ok && (!known || now != holder) {
			p.options.Log.Info("Lease of kube-controller-manager changed hands", "from", holder, "to", now)
			return
		}
	}
}

// awaitInstallation waits, and reports whether the companion's webhook was installed
// meanwhile and is not verified.
func (p *Prober) awaitInstallation(ctx context.Context, d time.Duration) bool {
	if p.options.Companion == nil {
		wait(ctx, d)
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	status := p.options.Companion.Status()
	for {
		changed := status.Changed()
		if s, _ := status.Load(); s.Installations != p.installations {
			p.installations = s.Installations
			if !p.options.Companion.IsVerified() {
				return true
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		case <-changed:
		}
	}
}

// holder returns the holder of kube-controller-manager's lease, if it can be read.
func (p *Prober) holder(ctx context.Context) (string, bool) {
	holder, err := LeaseHolder(ctx, p.options.Client)
	if err != nil && ctx.Err() == nil {
		p.options.Log.V(1).Info("Could not read the lease of kube-controller-manager", "error", err.Error())
	}
	return holder, err == nil
}

// probe creates a canary and sets the gate by what it shows. It reports whether it has
// shown anything.
func (p *Prober) probe(ctx context.Context) bool {
	var uid types.UID
	canary := Probe{Client: p.options.Client, Namespace: p.options.Namespace, Timeout: p.options.Timeout, OnCreate: func(of types.UID) {
		uid = of
		p.options.Own(of)
	}}
	running, err := canary.Run(ctx)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		p.options.Log.Error(err, "Probe for another garbage collector failed", "writing", p.options.Gate.IsOpen(),
			"fix", "let Gleaner create, get, patch and delete ConfigMaps in its namespace, or set --canary-timeout=0")
		return false
	case p.options.Companion != nil && !p.isCertain(running):
		p.options.Log.Info("The built-in garbage collector has not finalized a canary yet, retrying", "canaryTimeout", p.options.Timeout)
		return false
	case p.options.Companion != nil:
		p.found(ctx, running, uid)
	case running:
		p.shut()
	default:
		p.open(ctx)
	}
	return true
}

// isCertain reports whether what a canary has shown counts. A collector that is starting,
// or changing leaders, finalizes no canary either: that none is running takes two canaries
// in a row.
func (p *Prober) isCertain(running bool) bool {
	if running {
		p.unfinished = 0
		return true
	}
	p.unfinished++
	return p.unfinished > 1
}

// open opens the gate, which is logged once.
func (p *Prober) open(ctx context.Context) {
	if ctx.Err() != nil || !p.options.Gate.SetProbe(gate.Open) {
		return // what it was opened for may have changed
	}
	message := "Collecting"
	switch {
	case p.options.DryRun:
		message = "Dry run: deciding and recording, without writing anything"
	case p.options.Companion != nil:
		message = "Carrying out policies and finalizers, in addition to the built-in garbage collector"
	}
	p.options.Log.Info(message)
}

func (p *Prober) shut() {
	if p.options.Gate.SetProbe(gate.Shut) {
		p.options.Log.Error(nil, "Another garbage collector is running: writing nothing", "fix", Advice)
	}
}

// found publishes whether the built-in collector is running, which has finalized a canary
// then, and whether the API server has called the webhook about that. Without one, what
// policies decide is carried out, and nothing collects the rest.
func (p *Prober) found(ctx context.Context, running bool, canary types.UID) {
	c := p.options.Companion
	if running {
		ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
		defer cancel()
		c.Verify(ctx, canary)
	}
	before, now := c.Presence(), companion.Missing
	if running {
		now = companion.Running
	}
	c.SetPresence(now)
	switch {
	case now == companion.Missing && before != companion.Missing:
		p.options.Log.Error(nil, "No other garbage collector is running: what no policy governs is not collected", "fix", CompanionAdvice)
	case now == companion.Running && before == companion.Missing:
		p.options.Log.Info("The built-in garbage collector is running again")
	}
}

// verify creates canaries until the webhook is verified.
func (p *Prober) verify(ctx context.Context) {
	c := p.options.Companion
	for n := 0; n < maxCanaries && ctx.Err() == nil && !c.IsVerified(); n++ {
		wait(ctx, minInstall<<n)
		if !p.probe(ctx) || c.Presence() == companion.Missing {
			return
		}
	}
	if ctx.Err() == nil && !c.IsVerified() {
		p.options.Log.Error(nil, "The API server has not called the webhook about canaries: it may not reach it", "assumedUser", c.CollectorUser(),
			"fix", "look for failed webhook calls in the API server's log; check the Service, and network policies between the two")
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
