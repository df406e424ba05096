// Package companion is what only companion mode needs: Gleaner runs in addition to the
// built-in garbage collector, which asks a webhook before it deletes what policies govern.
// The package installs that webhook, and admission policies that reject deletes with
// propagation policy Orphan where a policy overrides them; it discovers the user name of
// the built-in collector, and verifies with canaries that the webhook is called.
//
// It subscribes to snapshots of policies and publishes what it has installed and seen. It
// decides about no object.
package companion

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// DefaultCollectorUser is the user name of the built-in garbage collector on nearly all
// clusters.
const DefaultCollectorUser = "system:serviceaccount:kube-system:generic-garbage-collector"

// retryInterval is when an installation that failed is tried again.
const retryInterval = 10 * time.Second

// Collector is the user name of the built-in garbage collector.
type Collector struct {
	// User is assumed until the collector's user was discovered, and afterwards as well if
	// it was Given by a person.
	User  string
	Given bool
}

// Options configure a Companion. All fields but NoCanary are required.
type Options struct {
	Objects   *admission.Objects
	Snapshots *policyset.Publisher
	Gate      *gate.Gate // only the leader installs
	Endpoint  webhook.Endpoint
	Collector Collector

	// CanaryLabel is the label of canaries. With NoCanary there are none.
	CanaryLabel string
	NoCanary    bool

	// KindOf returns the kind of a resource, if discovery has seen it.
	KindOf func(schema.GroupResource) (schema.GroupKind, bool)

	Log logr.Logger
}

// Status is what was installed and what is known about the built-in collector.
type Status struct {
	Term     uint64 // of leadership, in which webhooks were installed
	Revision uint64 // of the snapshot that they were installed for

	// Installations counts the times that the webhook was installed.
	Installations int
	Vetoes        error              // why webhooks are not installed
	Refusals      admission.Failures // why deletes with Orphan are not rejected, by the name of the admission policy

	Presence   Presence // of the built-in collector
	Mismatch   error    // see Companion.Mismatch
	Unverified string   // see Companion.Unverified
	Final      bool     // likewise
}

// Presence is whether a built-in garbage collector is running, by what canaries show.
type Presence string

// The values of Presence. The zero value is not known yet.
const (
	Running Presence = "Running"
	Missing Presence = "Missing"
)

// Companion installs webhooks and discovers the collector's user. Create it with New. Its
// methods may be called concurrently.
type Companion struct {
	options Options
	status  latest.Value[Status]

	discovered   atomic.Pointer[string]       // see Discovered
	verification atomic.Pointer[verification] // see Verify; nil before the first canary
	presence     atomic.Pointer[Presence]
	observed     latest.Value[struct{}] // something about the collector was observed

	identity webhook.Identity // of the last installation; for the goroutine of Run
	user     string           // CollectorUser of the last installation; likewise
}

// New returns a Companion.
func New(o Options) *Companion { return &Companion{options: o} }

// Status returns what was installed last.
func (c *Companion) Status() *latest.Value[Status] { return &c.status }

// Observed is published when something about the collector was observed: its user, or the
// result of a verification.
func (c *Companion) Observed() *latest.Value[struct{}] { return &c.observed }

// Run installs what each snapshot requires, while this replica leads, until ctx ends.
func (c *Companion) Run(ctx context.Context) error {
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for {
		snapshots, leading := c.options.Snapshots.Changed(), c.options.Gate.Changed()
		identity, observed := c.options.Endpoint.Identity.Changed(), c.observed.Changed()
		c.update(ctx)
		for waiting := true; waiting; {
			waiting = false
			select {
			case <-ctx.Done():
				return nil
			case <-snapshots:
			case <-leading:
			case <-identity:
			case <-observed:
			case <-tick.C:
				last, _ := c.status.Load()
				waiting = last.complete()
			}
		}
	}
}

// complete reports whether everything was installed.
func (s Status) complete() bool { return s.Vetoes == nil && len(s.Refusals) == 0 }

// update installs what the current snapshot requires, unless that was done, and publishes
// what is known.
func (c *Companion) update(ctx context.Context) {
	s, state := c.options.Snapshots.Current(), c.options.Gate.State()
	if s == nil || !state.Leading {
		return
	}
	discovery := c.discover(ctx)
	last, _ := c.status.Load()
	next := last
	done := last.Term == state.Term && last.Revision == s.Revision && last.complete()
	identity, user := c.options.Endpoint.Current(), c.CollectorUser()
	if !done || discovery != nil || !identity.Equal(c.identity) || user != c.user {
		c.identity, c.user = identity, user
		next = Status{Term: state.Term, Revision: s.Revision, Installations: last.Installations, Vetoes: discovery}
		if discovery == nil {
			var installed bool
			if installed, next.Vetoes = c.installVetoes(ctx, s); installed {
				next.Installations++
			}
		}
		next.Refusals = c.installRefusals(ctx, s) // after the collector's user was discovered
		c.logFailures(ctx, last, next)
	}
	next.Presence, next.Mismatch = c.Presence(), c.Mismatch()
	next.Unverified, next.Final = c.Unverified()
	if ctx.Err() == nil && fmt.Sprint(next) != fmt.Sprint(last) {
		c.status.Store(next)
	}
}

// SetPresence publishes whether a built-in collector is running.
func (c *Companion) SetPresence(p Presence) {
	c.presence.Store(&p)
	c.observed.Store(struct{}{})
}

// Presence returns whether a built-in collector is running.
func (c *Companion) Presence() Presence { return ptr.Deref(c.presence.Load(), "") }

// logFailures logs what could not be installed, once.
func (c *Companion) logFailures(ctx context.Context, last, next Status) {
	if ctx.Err() != nil {
		return
	}
	if next.Vetoes != nil && fmt.Sprint(next.Vetoes) != fmt.Sprint(last.Vetoes) {
		c.options.Log.Error(next.Vetoes, "Veto webhook is not installed; policies are not enforced on what the built-in garbage collector deletes")
	}
	if now := fmt.Sprint(next.Refusals); len(next.Refusals) != 0 && now != fmt.Sprint(last.Refusals) {
		c.options.Log.Info("Some deletes with propagation policy Orphan are not rejected", "why", now)
	}
}

// Remove deletes what a companion has installed, for an operator in primary mode that has
// found no other collector: the companion's webhooks are no longer served.
func Remove(ctx context.Context, objects *admission.Objects) error {
	err := objects.RemoveExcept(ctx, nil, refusalPrefix, &admissionv1.ValidatingAdmissionPolicyBindingList{}, &admissionv1.ValidatingAdmissionPolicyList{})
	if admission.IsMissingType(err) {
		err = nil
	}
	for _, configuration := range []client.Object{
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: admission.ConfigurationName}},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName}},
	} {
		if err == nil {
			err = objects.Remove(ctx, configuration)
		}
	}
	return err
}
