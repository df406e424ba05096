package finalize

import (
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/sdk/go/internal/guest"
)

// backoff returns the delay after an attempt: from 1s, doubled each time, up to 5m.
func backoff(attempt int) time.Duration {
	const most = 5 * time.Minute
	wait := time.Second
	for i := 1; i < attempt && wait < most; i++ {
		wait *= 2
	}
	return min(wait, most)
}

// handleError stops the run after an intent that was not carried out.
func (s *Steps) handleError(intent hostabi.Intent, e hostabi.ResultError) {
	what := describe(intent) + ": " + string(e.Reason)
	if e.Message != "" {
		what += ": " + e.Message
	}
	switch e.Reason {
	case hostabi.ErrorNotGranted, hostabi.ErrorForbidden, hostabi.ErrorInvalid:
		s.Fail(truncate(what, hostabi.MaxReasonBytes/2) + ". " + s.remedy(intent, e.Reason))
	default: // nothing is proved to be gone; retry
		s.Wait(backoff(s.req.Attempt), what)
	}
}

// remedy says what to change.
func (s *Steps) remedy(intent hostabi.Intent, reason hostabi.ErrorReason) string {
	switch {
	case s.req.ServiceAccountMissing && reason != hostabi.ErrorInvalid && intent.HTTP == nil:
		return "The service account of the finalizer does not exist: create it again with its permissions, or remove the finalizer"
	case s.req.NamespaceTerminating && intent.Create != nil:
		return "The namespace is being deleted, so nothing can be created in it"
	case s.req.NamespaceTerminating && reason == hostabi.ErrorForbidden:
		return "The namespace is being deleted, and the service account's permissions may already be deleted: " +
			"use a ClusterFinalizer with a service account and bindings in another namespace"
	case reason == hostabi.ErrorNotGranted:
		return "If a grant is missing, add it to spec.grants of the finalizer: " + grantFor(intent)
	case reason == hostabi.ErrorForbidden && intent.HTTP != nil:
		return "The service account of the finalizer may not read the Secrets of the grant: allow it to get them"
	case reason == hostabi.ErrorForbidden:
		return "The service account of the finalizer lacks the permission: allow it to " + string(intent.Type()) + " this resource, with a role and a binding"
	}
	return "The module has to send a valid intent"
}

// grantFor returns the grant that an intent needs.
func grantFor(intent hostabi.Intent) string {
	if intent.HTTP != nil {
		url, _, _ := strings.Cut(intent.HTTP.URL, "?")
		return "http: [{url: " + quote(url) + ", methods: [" + intent.HTTP.Method + "]}]"
	}
	target := targetOf(intent)
	group, _, grouped := strings.Cut(target.APIVersion, "/")
	if !grouped {
		group = ""
	}
	field, verbs := "read", ""
	if t := intent.Type(); !t.ReadOnly() {
		field, verbs = "write", ", verbs: ["+string(t)+"]"
	}
	text := field + ": [{apiGroups: [" + quote(group) + "], resources: [the plural of " + target.Kind + "]" + verbs
	if target.Namespace != "" {
		text += ", namespaces: [" + target.Namespace + "]"
	}
	return text + "}]"
}

func quote(text string) string { return `"` + text + `"` }

// describe formats an intent for people.
func describe(intent hostabi.Intent) string {
	if intent.HTTP != nil {
		url, _, _ := strings.Cut(intent.HTTP.URL, "?") // a query may contain a secret
		return intent.HTTP.Method + " " + url
	}
	return string(intent.Type()) + " " + describeTarget(targetOf(intent))
}

func describeTarget(t hostabi.Target) string {
	switch {
	case t.Namespace == "":
		return strings.TrimSpace(t.Kind + " " + t.Name)
	case t.Name == "":
		return t.Kind + " in " + t.Namespace
	}
	return t.Kind + " " + t.Namespace + "/" + t.Name
}

// targetOf returns the target of an intent, as far as it is known.
func targetOf(intent hostabi.Intent) hostabi.Target {
	switch {
	case intent.Get != nil:
		return intent.Get.Target
	case intent.Delete != nil:
		return intent.Delete.Target
	case intent.Patch != nil:
		return intent.Patch.Target
	case intent.List != nil:
		return hostabi.Target{APIVersion: intent.List.APIVersion, Kind: intent.List.Kind, Namespace: intent.List.Namespace}
	case intent.Create != nil:
		return TargetOf(guest.DecodeObject(intent.Create.Object))
	}
	return hostabi.Target{}
}
