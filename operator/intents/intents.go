// Package intents carries out the intents of modules: reads and writes of objects, HTTP
// requests and events. Each intent is checked against the grants, and carried out as the
// configured service account.
//
// It makes no decisions, keeps no state about modules, and returns errors only in
// results, where the module can react to them. It adds credentials to requests, which
// never appear in a result or an error.
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
	"github.com/gleaner-dev/gleaner/operator/impersonate"
	"github.com/gleaner-dev/gleaner/operator/writelimit"
	"github.com/gleaner-dev/gleaner/policies"
)

// An Identity is the policy or finalizer for which intents are carried out: its service
// account and its grants.
type Identity struct {
	Namespace string // of the Finalizer; "": cluster-scoped
	Name      string // as policies.Finalizer.String()
	Account   policies.ServiceAccount
	Grants    policies.Grants

	// InvolvedObject is the object that the module is evaluated for: the target of its events.
	InvolvedObject *corev1.ObjectReference

	// ReadOnly is set in Monitor mode: only intents without effects are carried out.
	ReadOnly bool
}

// Options configure an Executor.
type Options struct {
	Config  *rest.Config // must be allowed to impersonate service accounts; not modified
	Catalog func() *catalog.Catalog

	// RecordEvent records an event about an object. Its kind is Normal or Warning.
	RecordEvent func(about *corev1.ObjectReference, kind, reason, message string)

	// EventLimiter limits the rate of events; nil: no limit. Limited is called with the name of a
	// policy or finalizer that exceeds it; may be nil.
	EventLimiter *writelimit.Limiter
	EventLimited func(by string)

	// ClusterNetworks returns the cluster's own networks that have public addresses. Like private
	// addresses, they are reached by HTTP only if a grant lists the address. While it
	// returns an error, no public address is reached either. nil: none.
	ClusterNetworks func(context.Context) ([]netip.Prefix, error)

	// ReuseConnections keeps the connections of HTTP intents for a moment. What a server sends on an
	// idle one is written to the standard logger, and may contain credentials. So the output of that
	// logger must be WithoutServerData.
	ReuseConnections bool

	Resolver *net.Resolver    // nil: the system's
	Now      func() time.Time // nil: time.Now
	Log      logr.Logger
}

// An Executor carries out intents. Its methods may be called concurrently.
type Executor struct {
	options     Options
	clients     *apiClients
	secrets     *secretCache
	connections connections
	retryAfter  *retryAfters
}

// New returns an Executor. It needs no closing.
func New(o Options) *Executor {
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &apiClients{impersonate.New(o.Config, newAPIClient)}
	return &Executor{options: o, clients: a, secrets: newSecretCache(a, o.Now), retryAfter: newRetryAfters(o.Now)}
}

// Do carries out an intent. Failures are reported in the result's Error.
func (e *Executor) Do(ctx context.Context, identity Identity, intent hostabi.Intent) hostabi.Result {
	result, err := e.do(ctx, identity, intent)
	if err != nil {
		result = errorResult(err)
	}
	reason := hostabi.ErrorReason("")
	if result.Error != nil {
		reason = result.Error.Reason
	}
	e.options.Log.V(1).Info("Intent carried out", "for", identity.Name, "id", intent.ID, "type", intent.Type(), "error", reason)
	return result
}

func (e *Executor) do(ctx context.Context, identity Identity, intent hostabi.Intent) (hostabi.Result, error) {
	if identity.ReadOnly && !OnlyReads(intent) {
		return hostabi.Result{}, errorf(hostabi.ErrorNotGranted,
			"mode is Monitor: only reads of objects and HTTP requests with the methods GET and HEAD are carried out")
	}
	switch intent.Type() {
	case hostabi.IntentGet:
		return e.get(ctx, identity, *intent.Get)
	case hostabi.IntentList:
		return e.list(ctx, identity, *intent.List)
	case hostabi.IntentCreate:
		return e.create(ctx, identity, *intent.Create)
	case hostabi.IntentDelete:
		return e.delete(ctx, identity, *intent.Delete)
	case hostabi.IntentPatch:
		return e.patch(ctx, identity, *intent.Patch)
	case hostabi.IntentHTTP:
		return e.http(ctx, identity, *intent.HTTP)
	case hostabi.IntentEvent:
		return e.event(identity, *intent.Event)
	default:
		return hostabi.Result{}, errorf(hostabi.ErrorInvalid, "the intent must have exactly one of get, list, create, delete, patch, http and event")
	}
}

// OnlyReads reports whether an intent is read-only, and is carried out in Monitor mode as
// well. HTTP requests are classified by method.
func OnlyReads(intent hostabi.Intent) bool {
	if intent.Type() == hostabi.IntentHTTP {
		return intent.HTTP.Method == http.MethodGet || intent.HTTP.Method == http.MethodHead
	}
	return intent.Type().ReadOnly()
}

// HasEffects reports whether an intent changes an object, or something outside the cluster.
// Events do neither, and have limits of their own.
func HasEffects(intent hostabi.Intent) bool {
	return !OnlyReads(intent) && intent.Type() != hostabi.IntentEvent
}

// Describe returns a short description of an intent, without queries and bodies.
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

// event needs no grant: it is about the object that the module is evaluated for, and its
// message names the policy or finalizer.
func (e *Executor) event(identity Identity, event hostabi.EventIntent) (hostabi.Result, error) {
	if identity.InvolvedObject == nil || e.options.RecordEvent == nil {
		return hostabi.Result{}, errorf(hostabi.ErrorInvalid, "events require an object")
	}
	if wait := e.options.EventLimiter.Take(identity.Name, identity.InvolvedObject.Namespace, 1, e.options.Now()); wait > 0 {
		if e.options.EventLimited != nil {
			e.options.EventLimited(identity.Name)
		}
		return hostabi.Result{}, errorf(hostabi.ErrorUnavailable, "event rate limit exceeded for the module or the namespace: request events only after changes")
	}
	e.options.RecordEvent(identity.InvolvedObject, string(event.Type), event.Reason, truncate(identity.Name+": "+event.Message, hostabi.MaxReasonBytes))
	return hostabi.Result{}, nil
}

// An intentError is the reason why an intent failed.
type intentError struct {
	reason  hostabi.ErrorReason
	message string
}

func (p *intentError) Error() string { return p.message }

func errorf(reason hostabi.ErrorReason, format string, args ...any) *intentError {
	return &intentError{reason, fmt.Sprintf(format, args...)}
}

// errorResult converts an error to a result. Errors that are not classified may be temporary.
func errorResult(err error) hostabi.Result {
	reason := hostabi.ErrorUnavailable
	if p := new(intentError); errors.As(err, &p) {
		reason = p.reason
	}
	return hostabi.Result{Error: &hostabi.ResultError{Reason: reason, Message: truncate(err.Error(), hostabi.MaxReasonBytes)}}
}

// truncate truncates a text to most bytes, at the end of a character.
func truncate(text string, maxBytes int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxBytes {
		return text
	}
	for maxBytes > 0 && !utf8.RuneStart(text[maxBytes]) {
		maxBytes--
	}
	return text[:maxBytes]
}
