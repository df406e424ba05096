// Package intents carries out what modules ask for: reads and writes of objects,
// HTTP requests and events. Each is checked against what was granted, and done as
// the service account that was named for it.
//
// It decides nothing, remembers nothing of the modules, and never fails: what went
// wrong is in the result, for the module to decide upon. Credentials are added
// here, and come back neither in a result nor in an error.
package intents

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/writelimit"
	"github.com/gleaner-dev/gleaner/policies"
)

// Behalf is on whose behalf intents are carried out.
type Behalf struct {
	Namespace string // of the Finalizer; "": of the cluster
	Name      string // as policies.Finalizer.String()
	Account   policies.Account
	Grants    policies.Grants

	// About is the object that the module was asked about: events are about it.
	About *corev1.ObjectReference

	// ReadOnly is for the mode Monitor: nothing is done that might change something.
	ReadOnly bool
}

// Options are what an Executor works with.
type Options struct {
	Config  *rest.Config // may impersonate service accounts; it is not changed
	Catalog func() *catalog.Catalog

	// Tell tells an event about an object. Its kind is Normal or Warning.
	Tell func(about *corev1.ObjectReference, kind, reason, message string)

	// Events bound how many events modules raise; nil: nothing does. Limited is told
	// who asked for one too many; may be nil.
	Events  *writelimit.Limiter
	Limited func(by string)

	// Inside returns the cluster's own networks, where they look public: they are
	// reached by HTTP where a grant names the address, as private ones are. Until it
	// can tell, no other addresses are reached either. nil: there are none.
	Inside func(context.Context) ([]netip.Prefix, error)

	Resolver *net.Resolver    // nil: the system's
	Now      func() time.Time // nil: time.Now
	Log      logr.Logger
}

// Executor carries out intents. Its methods may be called concurrently.
type Executor struct {
	options  Options
	accounts *accounts
	vault    *vault
	waits    *waits
}

// New returns an Executor. It has nothing that must be closed.
func New(o Options) *Executor {
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &accounts{config: o.Config, clients: map[policies.Account]*rest.RESTClient{}}
	return &Executor{options: o, accounts: a, vault: newVault(a, o.Now), waits: newWaits(o.Now)}
}

// Do carries out an intent. What goes wrong is in the result's Error.
func (e *Executor) Do(ctx context.Context, on Behalf, intent hostabi.Intent) hostabi.Result {
	result, err := e.do(ctx, on, intent)
	if err != nil {
		result = resultOf(err)
	}
	reason := hostabi.ErrorReason("")
	if result.Error != nil {
		reason = result.Error.Reason
	}
	e.options.Log.V(1).Info("Intent carried out", "for", on.Name, "id", intent.ID, "type", intent.Type(), "error", reason)
	return result
}

func (e *Executor) do(ctx context.Context, on Behalf, intent hostabi.Intent) (hostabi.Result, error) {
	if on.ReadOnly && !OnlyReads(intent) {
		return hostabi.Result{}, problemf(hostabi.ErrorNotGranted,
			"the mode is Monitor: objects are read and HTTP requests sent by GET and HEAD, and nothing else is done")
	}
	switch intent.Type() {
	case hostabi.IntentGet:
		return e.get(ctx, on, *intent.Get)
	case hostabi.IntentList:
		return e.list(ctx, on, *intent.List)
	case hostabi.IntentCreate:
		return e.create(ctx, on, *intent.Create)
	case hostabi.IntentDelete:
		return e.delete(ctx, on, *intent.Delete)
	case hostabi.IntentPatch:
		return e.patch(ctx, on, *intent.Patch)
	case hostabi.IntentHTTP:
		return e.http(ctx, on, *intent.HTTP)
	case hostabi.IntentEvent:
		return e.event(on, *intent.Event)
	default:
		return hostabi.Result{}, problemf(hostabi.ErrorInvalid, "the intent asks for several things, or for none: write one")
	}
}

// OnlyReads reports whether an intent changes nothing, as far as can be told: it is
// carried out in Monitor, too.
func OnlyReads(intent hostabi.Intent) bool {
	if intent.Type() == hostabi.IntentHTTP {
		return intent.HTTP.Method == http.MethodGet || intent.HTTP.Method == http.MethodHead
	}
	return intent.Type().Reads()
}

// Describe says in a few words what an intent is, without what a query or a body may
// hold.
func Describe(intent hostabi.Intent) string {
	target := func(t hostabi.Target) string {
		return fmt.Sprintf("%s of %s %s", intent.Type(), t.Kind, strings.TrimPrefix(t.Namespace+"/"+t.Name, "/"))
	}
	switch {
	case intent.Delete != nil:
		return target(intent.Delete.Target)
	case intent.Patch != nil:
		return target(intent.Patch.Target)
	case intent.HTTP != nil:
		address, _, _ := strings.Cut(intent.HTTP.URL, "?")
		return intent.HTTP.Method + " " + address
	default:
		return string(intent.Type())
	}
}

// event needs no grant: it is about no other object than the module was asked
// about, and says who tells it.
func (e *Executor) event(on Behalf, event hostabi.EventIntent) (hostabi.Result, error) {
	if on.About == nil || e.options.Tell == nil {
		return hostabi.Result{}, problemf(hostabi.ErrorInvalid, "there is no object that an event could be about")
	}
	if wait := e.options.Events.Take(on.Name, on.About.Namespace, 1, e.options.Now()); wait > 0 {
		if e.options.Limited != nil {
			e.options.Limited(on.Name)
		}
		return hostabi.Result{}, problemf(hostabi.ErrorUnavailable, "too many events were raised by the module or in the namespace: raise one when something has changed")
	}
	e.options.Tell(on.About, string(event.Type), event.Reason, shorten(on.Name+": "+event.Message, hostabi.MaxReasonBytes))
	return hostabi.Result{}, nil
}

// problem is why an intent was not carried out.
type problem struct {
	reason  hostabi.ErrorReason
	message string
}

func (p *problem) Error() string { return p.message }

func problemf(reason hostabi.ErrorReason, format string, args ...any) *problem {
	return &problem{reason, fmt.Sprintf(format, args...)}
}

// resultOf makes a result of what went wrong. Whatever is no problem that was seen
// to be one may be gone the next time.
func resultOf(err error) hostabi.Result {
	reason := hostabi.ErrorUnavailable
	if p := new(problem); errors.As(err, &p) {
		reason = p.reason
	}
	return hostabi.Result{Error: &hostabi.ResultError{Reason: reason, Message: shorten(err.Error(), hostabi.MaxReasonBytes)}}
}

// shorten cuts a text at the end of a character.
func shorten(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
