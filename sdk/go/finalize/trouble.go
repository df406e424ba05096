package finalize

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// backoff is how long to wait in which attempt: from 1s, each time twice as
// long, up to 5m.
func backoff(attempt int) time.Duration {
	const most = 5 * time.Minute
	wait := time.Second
	for i := 1; i < attempt && wait < most; i++ {
		wait *= 2
	}
	return min(wait, most)
}

// trouble stops the run for an intent that was not carried out.
func (s *Steps) trouble(intent hostabi.Intent, e hostabi.ResultError) {
	what := describe(intent) + ": " + string(e.Reason)
	if e.Message != "" {
		what += ": " + e.Message
	}
	switch e.Reason {
	case hostabi.ErrorNotGranted, hostabi.ErrorForbidden, hostabi.ErrorInvalid:
		s.Fail(shortened(what, hostabi.MaxReasonBytes/2) + ". " + s.remedy(intent, e.Reason))
	default: // it has not been shown that anything is gone, and may be another time
		s.Wait(backoff(s.request.Attempt), what)
	}
}

// remedy says what a human can do.
func (s *Steps) remedy(intent hostabi.Intent, reason hostabi.ErrorReason) string {
	switch {
	case s.request.ServiceAccountMissing && reason != hostabi.ErrorInvalid && intent.HTTP == nil:
		return "The service account of the finalizer does not exist any more: create it again with its rights, or take the finalizer off"
	case s.request.NamespaceTerminating && intent.Create != nil:
		return "The namespace is being deleted, and nothing can be created in it any more"
	case s.request.NamespaceTerminating && reason == hostabi.ErrorForbidden:
		return "The namespace is being deleted, and the service account's rights may be gone with it: " +
			"a service account and its bindings that are to outlive it belong into another namespace, and a ClusterFinalizer"
	case reason == hostabi.ErrorNotGranted:
		return "If a grant is missing, write it into spec.grants of the finalizer: " + grant(intent)
	case reason == hostabi.ErrorForbidden && intent.HTTP != nil:
		return "The service account of the finalizer may not read the secrets that the grant names: give it the right to get them"
	case reason == hostabi.ErrorForbidden:
		return "The service account of the finalizer may not: give it the right to " + string(intent.Type()) + " this resource, with a role and a binding"
	}
	return "The module has to ask for something else"
}

// grant is what has to be in a finalizer's grants for an intent.
func grant(intent hostabi.Intent) string {
	if intent.HTTP != nil {
		url, _, _ := strings.Cut(intent.HTTP.URL, "?")
		return "http: [{url: " + quoted(url) + ", methods: [" + intent.HTTP.Method + "]}]"
	}
	target := targetOf(intent)
	group, _, grouped := strings.Cut(target.APIVersion, "/")
	if !grouped {
		group = ""
	}
	field, verbs := "read", ""
	if t := intent.Type(); !t.Reads() {
		field, verbs = "write", ", verbs: ["+string(t)+"]"
	}
	text := field + ": [{apiGroups: [" + quoted(group) + "], resources: [the plural of " + target.Kind + "]" + verbs
	if target.Namespace != "" {
		text += ", namespaces: [" + target.Namespace + "]"
	}
	return text + "}]"
}

func quoted(text string) string { return `"` + text + `"` }

// describe is an intent for people.
func describe(intent hostabi.Intent) string {
	if intent.HTTP != nil {
		url, _, _ := strings.Cut(intent.HTTP.URL, "?") // a query may hold a secret
		return intent.HTTP.Method + " " + url
	}
	return string(intent.Type()) + " " + named(targetOf(intent))
}

func named(t hostabi.Target) string {
	switch {
	case t.Namespace == "":
		return strings.TrimSpace(t.Kind + " " + t.Name)
	case t.Name == "":
		return t.Kind + " in " + t.Namespace
	}
	return t.Kind + " " + t.Namespace + "/" + t.Name
}

// targetOf is what an intent is about, as far as it says.
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
		var o hostabi.Object
		_ = json.Unmarshal(intent.Create.Object, &o) // one that can't be read has no name
		return TargetOf(o)
	}
	return hostabi.Target{}
}
