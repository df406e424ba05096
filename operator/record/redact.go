package record

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// Redact returns a transcript without secrets: the contents of Secrets, and the
// headers, bodies and queries of HTTP, are replaced by salted hashes. It is
// replayable if nothing was replaced. With bodies, the transcript is returned unchanged.
//
// The exchanges passed in are not modified.
func Redact(exchanges []policies.Exchange, bodies bool) (redacted []policies.Exchange, replayable bool) {
	if bodies {
		return exchanges, true
	}
	r := redactor{}
	for i, e := range exchanges {
		before := r.count
		clean := e
		clean.Request.Object = r.object(e.Request.Object)
		clean.Request.Results = r.results(e.Request.Results)
		clean.Verdict.Intents = r.intents(e.Verdict.Intents)
		switch {
		case redacted != nil:
			redacted = append(redacted, clean)
		case r.count != before:
			redacted = append(slices.Clone(exchanges[:i]), clean)
		}
	}
	if r.count == 0 {
		return exchanges, true
	}
	return redacted, false
}

// redactor replaces secrets and counts them.
type redactor struct{ count int }

// salt is random for each process: within the records of one process, equal hashes
// mean equal values, but a hash can't be compared with that of a guessed value.
var salt = sync.OnceValue(func() []byte {
	random := make([]byte, sha256.Size)
	_, _ = rand.Read(random) // never fails
	return random
})

// hash returns the replacement for a value. An empty value stays empty.
func (r *redactor) hash(value string) string {
	if value == "" {
		return ""
	}
	r.count++
	sum := hmac.New(sha256.New, salt())
	_, _ = sum.Write([]byte(value))
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// hashDocument returns the hash of a document as a JSON string.
func (r *redactor) hashDocument(document json.RawMessage) json.RawMessage {
	return json.RawMessage(`"` + r.hash(string(document)) + `"`)
}

func (r *redactor) headers(headers map[string]string) map[string]string {
	if len(headers) == 0 {
		return headers
	}
	hashed := make(map[string]string, len(headers))
	for name, value := range headers {
		hashed[name] = r.hash(value)
	}
	return hashed
}

func isSecret(apiVersion, kind string) bool { return apiVersion == "v1" && kind == "Secret" }

// object redacts the data of a Secret. A Secret that cannot be parsed is redacted
// entirely.
func (r *redactor) object(o hostabi.Object) hostabi.Object {
	if !isSecret(o.APIVersion, o.Kind) {
		return o
	}
	var redacted hostabi.Object
	body, err := o.MarshalJSON()
	if err == nil {
		err = redacted.UnmarshalJSON(r.secretDocument(body))
	}
	if err != nil {
		r.count++
		return hostabi.Object{APIVersion: o.APIVersion, Kind: o.Kind, Metadata: hostabi.Metadata{Name: o.Metadata.Name, Namespace: o.Metadata.Namespace, UID: o.Metadata.UID}}
	}
	return redacted
}

// secretDocument redacts a Secret's document: its values, and annotations that may contain
// copies of them, such as the one of kubectl apply.
func (r *redactor) secretDocument(body json.RawMessage) json.RawMessage {
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&fields) != nil {
		return r.hashDocument(body)
	}
	before := r.count
	for _, name := range []string{"data", "stringData"} {
		r.hashValues(fields, name, func(string, string) bool { return true })
	}
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		r.hashValues(metadata, "annotations", func(name, value string) bool {
			return name == lastApplied || strings.HasPrefix(strings.TrimSpace(value), "{")
		})
	}
	if r.count == before {
		return body
	}
	redacted, err := json.Marshal(fields)
	if err != nil {
		return r.hashDocument(body)
	}
	return redacted
}

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// hashValues redacts the values of a map of strings that hide selects. A field of any
// other type is redacted entirely.
func (r *redactor) hashValues(fields map[string]any, name string, selected func(name, value string) bool) {
	switch values := fields[name].(type) {
	case nil:
	case map[string]any:
		for key, value := range values {
			text, ok := value.(string)
			if !ok && value != nil {
				text = fmt.Sprint(value)
			}
			if selected(key, text) {
				values[key] = r.hash(text)
			}
		}
	default:
		fields[name] = r.hash(fmt.Sprint(values))
	}
}

func (r *redactor) results(results map[string]hostabi.Result) map[string]hostabi.Result {
	var redacted map[string]hostabi.Result
	for id, result := range results {
		before := r.count
		clean := r.result(result)
		if r.count == before {
			continue
		}
		if redacted == nil {
			redacted = make(map[string]hostabi.Result, len(results))
			for id, result := range results {
				redacted[id] = result
			}
		}
		redacted[id] = clean
	}
	if redacted == nil {
		return results
	}
	return redacted
}

func (r *redactor) result(result hostabi.Result) hostabi.Result {
	if result.Object != nil {
		o := r.object(*result.Object)
		result.Object = &o
	}
	if result.List != nil {
		list := *result.List
		list.Items = make([]hostabi.Object, 0, len(list.Items))
		for _, item := range result.List.Items {
			list.Items = append(list.Items, r.object(item))
		}
		result.List = &list
	}
	if result.HTTP != nil {
		response := *result.HTTP
		response.Headers = r.headers(response.Headers)
		response.Body, response.BodyBase64 = r.hash(response.Body+string(response.BodyBase64)), nil
		result.HTTP = &response
	}
	return result
}

func (r *redactor) intents(intents []hostabi.Intent) []hostabi.Intent {
	before := r.count
	redacted := make([]hostabi.Intent, 0, len(intents))
	for _, i := range intents {
		redacted = append(redacted, r.intent(i))
	}
	if r.count == before {
		return intents
	}
	return redacted
}

func (r *redactor) intent(i hostabi.Intent) hostabi.Intent {
	switch {
	case i.HTTP != nil:
		request := *i.HTTP
		request.Headers, request.Body = r.headers(request.Headers), r.hash(request.Body)
		if address, query, ok := strings.Cut(request.URL, "?"); ok {
			request.URL = address + "?" + r.hash(query)
		}
		i.HTTP = &request
	case i.Create != nil:
		var target struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if json.Unmarshal(i.Create.Object, &target) != nil || isSecret(target.APIVersion, target.Kind) {
			i.Create = &hostabi.CreateIntent{Object: r.secretDocument(i.Create.Object)}
		}
	case i.Patch != nil && isSecret(i.Patch.APIVersion, i.Patch.Kind):
		patch := *i.Patch
		patch.Patch = r.hashDocument(patch.Patch)
		i.Patch = &patch
	}
	return i
}
