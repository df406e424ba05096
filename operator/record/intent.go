package record

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Intent is an intent of a module with its result. It contains neither the bodies of
// objects nor the headers, bodies and queries of HTTP requests.
type Intent struct {
	ID      string             `json:"id"`
	Type    hostabi.IntentType `json:"type"`
	Summary string             `json:"what"`             // for example "DELETE https://…" or "get ConfigMap shop/settings"
	Object  Object             `json:"object,omitzero"`  // the target; zero for lists, HTTP and events
	Result  string             `json:"result,omitempty"` // the HTTP status, the reason of an error, or Done; empty if not carried out
}

// String returns the intent with its result, for use in a sentence.
func (i Intent) String() string {
	if i.Result == "" {
		return i.Summary
	}
	return i.Summary + ": " + i.Result
}

// IntentsOf returns the intents of a verdict with their results.
func IntentsOf(intents []hostabi.Intent, results map[string]hostabi.Result) []Intent {
	var list []Intent
	for _, i := range intents {
		entry := Intent{ID: i.ID, Type: i.Type()}
		entry.Summary, entry.Object = summaryOf(i)
		if result, ok := results[i.ID]; ok {
			entry.Result = resultOf(result)
		}
		list = append(list, entry)
	}
	return list
}

// TargetOf returns the target object of an intent, if it has one.
func TargetOf(i hostabi.Intent) (Object, bool) {
	_, o := summaryOf(i)
	return o, o != Object{}
}

func summaryOf(i hostabi.Intent) (string, Object) {
	switch {
	case i.Get != nil:
		return about("get", i.Get.Target)
	case i.Delete != nil:
		return about("delete", i.Delete.Target)
	case i.Patch != nil:
		return about("patch", i.Patch.Target)
	case i.Create != nil:
		return create(i.Create.Object)
	case i.List != nil:
		where := " in all namespaces"
		if i.List.Namespace != "" {
			where = " in " + i.List.Namespace
		}
		return "list " + i.List.Kind + where, Object{}
	case i.HTTP != nil:
		address, _, _ := strings.Cut(i.HTTP.URL, "?") // a query may contain secrets
		return i.HTTP.Method + " " + address, Object{}
	case i.Event != nil:
		return fmt.Sprintf("event %s %s", i.Event.Type, i.Event.Reason), Object{}
	default:
		return "", Object{}
	}
}

func about(verb string, t hostabi.Target) (string, Object) {
	o := Object{APIVersion: t.APIVersion, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name}
	return verb + " " + o.String(), o
}

func create(document json.RawMessage) (string, Object) {
	var target struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
	}
	if json.Unmarshal(document, &target) != nil {
		return "create", Object{} // the parser of verdicts rejects such intents
	}
	return about(string(hostabi.IntentCreate), hostabi.Target{
		APIVersion: target.APIVersion, Kind: target.Kind, Namespace: target.Metadata.Namespace, Name: target.Metadata.Name,
	})
}

func resultOf(r hostabi.Result) string {
	switch {
	case r.Error != nil:
		return string(r.Error.Reason)
	case r.HTTP != nil:
		return strconv.Itoa(r.HTTP.Status)
	default:
		return done
	}
}
