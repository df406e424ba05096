package collector_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/cockroachdb/datadriven"
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// words are the arguments of a command, or of one line of its input.
type words struct {
	plain  []string
	values map[string][]string
}

func wordsOf(args []datadriven.CmdArg) words {
	w := words{values: map[string][]string{}}
	for _, arg := range args {
		if len(arg.Vals) == 0 {
			w.plain = append(w.plain, arg.Key)
			continue
		}
		w.values[arg.Key] = slices.DeleteFunc(slices.Clone(arg.Vals), func(v string) bool { return v == "" })
	}
	return w
}

func (w words) has(word string) bool { return slices.Contains(w.plain, word) }

func (w words) value(key, otherwise string) string {
	if v := w.values[key]; len(v) != 0 {
		return v[0]
	}
	return otherwise
}

// kindOf reads Kind, Kind.group or Kind.version.group.
func kindOf(text string) schema.GroupVersionKind {
	kind, group, _ := strings.Cut(text, ".")
	gvk := schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
	if first, rest, ok := strings.Cut(group, "."); ok && isVersion.MatchString(first) {
		gvk.Group, gvk.Version = rest, first
	}
	return gvk
}

var isVersion = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// references reads owners, KIND:NAME, KIND:NAME:UID or KIND:NAME:UID:block.
func references(texts []string) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, text := range texts {
		parts := strings.Split(text, ":")
		apiVersion, kind := kindOf(parts[0]).ToAPIVersionAndKind()
		ref := metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: parts[1], UID: types.UID(parts[1])}
		if len(parts) > 2 && parts[2] != "" {
			ref.UID = types.UID(parts[2])
		}
		if len(parts) > 3 {
			ref.BlockOwnerDeletion = ptr.To(parts[3] == "block")
		}
		refs = append(refs, ref)
	}
	return refs
}

// ownerText writes an owner by its UID, with ! if it is blocked.
func ownerText(ref metav1.OwnerReference) string {
	if ptr.Deref(ref.BlockOwnerDeletion, false) {
		return string(ref.UID) + "!"
	}
	return string(ref.UID)
}

func (o *object) String() string {
	said := []string{string(o.UID), "rv=" + o.ResourceVersion}
	var owners []string
	for _, ref := range o.OwnerReferences {
		owners = append(owners, ownerText(ref))
	}
	if len(owners) != 0 {
		said = append(said, "owners=("+strings.Join(owners, ",")+")")
	}
	if len(o.Finalizers) != 0 {
		said = append(said, "finalizers=("+strings.Join(o.Finalizers, ",")+")")
	}
	if o.DeletionTimestamp != nil {
		said = append(said, "terminating")
	}
	return strings.Join(said, " ")
}

// brief says in short what is asked of an object, and on what condition.
func brief(verb, contentType string, body []byte) string {
	switch verb {
	case http.MethodDelete:
		return briefDelete(body)
	case http.MethodPatch:
		return briefPatch(contentType, body)
	default:
		return ""
	}
}

func briefDelete(body []byte) string {
	var options metav1.DeleteOptions
	if err := json.Unmarshal(body, &options); err != nil {
		return " " + err.Error()
	}
	var said strings.Builder
	if p := options.Preconditions; p == nil || p.UID == nil {
		said.WriteString(" WHATEVER-UID")
	}
	if p := options.Preconditions; p == nil || p.ResourceVersion == nil {
		said.WriteString(" WHATEVER-VERSION")
	} else {
		said.WriteString(" rv=" + *p.ResourceVersion)
	}
	if options.PropagationPolicy != nil {
		said.WriteString(" " + string(*options.PropagationPolicy))
	}
	if options.GracePeriodSeconds != nil {
		fmt.Fprintf(&said, " grace=%ds", *options.GracePeriodSeconds)
	}
	return said.String()
}

func briefPatch(contentType string, body []byte) string {
	var patch struct {
		Metadata struct {
			UID             string            `json:"uid"`
			ResourceVersion string            `json:"resourceVersion"`
			OwnerReferences []json.RawMessage `json:"ownerReferences"`
			Finalizers      []string          `json:"finalizers"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		return " " + err.Error()
	}
	m := patch.Metadata
	said := []string{"", strings.TrimSuffix(strings.TrimPrefix(contentType, "application/"), "-patch+json")}
	if m.UID == "" {
		said = append(said, "WHATEVER-UID")
	}
	if m.ResourceVersion != "" {
		said = append(said, "rv="+m.ResourceVersion)
	}
	if strings.Contains(string(body), `"ownerReferences"`) {
		said = append(said, "owners=("+strings.Join(briefOwners(m.OwnerReferences), ",")+")")
	}
	if strings.Contains(string(body), `"finalizers"`) {
		said = append(said, "finalizers=("+strings.Join(m.Finalizers, ",")+")")
	}
	return strings.Join(said, " ")
}

func briefOwners(refs []json.RawMessage) []string {
	var said []string
	for _, raw := range refs {
		var ref struct {
			Patch string `json:"$patch"`
			metav1.OwnerReference
		}
		if err := json.Unmarshal(raw, &ref); err != nil {
			panic(err)
		}
		if ref.Patch == "delete" {
			said = append(said, "-"+string(ref.UID))
			continue
		}
		said = append(said, ownerText(ref.OwnerReference))
	}
	return said
}

// decided is a log that says what is decided, and only that.
type decided func(string)

func (decided) Init(logr.RuntimeInfo)            {}
func (decided) Enabled(level int) bool           { return level == 0 }
func (decided) Error(error, string, ...any)      {}
func (d decided) WithValues(...any) logr.LogSink { return d }
func (d decided) WithName(string) logr.LogSink   { return d }
func (d decided) Info(_ int, text string, pairs ...any) {
	if text != "Decided" {
		return
	}
	value := map[any]any{}
	for i := 0; i < len(pairs); i += 2 {
		value[pairs[i]] = pairs[i+1]
	}
	said := fmt.Sprintf("%s: %s", value["reason"], value["action"])
	if how, ok := value["how"]; ok {
		said += fmt.Sprintf(" %s", how)
	}
	if result := value["result"]; result != "" {
		said += fmt.Sprintf(" [%s]", result)
	}
	d(said)
}
