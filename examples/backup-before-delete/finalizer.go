package main

import (
	"encoding/json"
	"strings"
	"time"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/finalize"
)

// settings are the settings of the finalizer: where manifests are stored. Exactly
// one is set.
type settings struct {
	Namespace string `json:"namespace"` // into ConfigMaps there
	URL       string `json:"url"`       // by PUT below that address, without a slash at its end
}

// finalizer stores the same manifest under the same name each time, since it may be
// evaluated again at any point. The backup is complete only when it was read back.
func finalizer(r gleaner.Request) (gleaner.Verdict, error) {
	return finalize.Run(r, func(s *finalize.Steps) {
		set, problem := settingsOf(r)
		if problem != "" {
			s.Fail(problem)
		}
		if r.Object.Is("", "Secret") {
			s.Fail("a backup of a Secret would be readable by others: remove secrets from the finalizer's resources")
		}
		manifest, err := manifestOf(r.Object)
		if err != nil {
			s.Fail("encode its manifest: " + err.Error())
		}
		if set.URL != "" {
			put(s, set.URL+"/"+nameOf(r.Object)+".json", manifest)
			return
		}
		store(s, set.Namespace, manifest)
	})
}

// backup is a ConfigMap that contains a manifest.
type backup struct {
	APIVersion string            `json:"apiVersion,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Metadata   map[string]any    `json:"metadata,omitempty"`
	Data       map[string]string `json:"data"`
}

const file = "manifest.json" // key in the ConfigMap

// store stores the manifest in a ConfigMap.
func store(s *finalize.Steps, namespace, manifest string) {
	object := s.Request().Object
	target := gleaner.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: nameOf(object)}
	data := map[string]string{file: manifest}
	s.Create("store", backup{
		APIVersion: target.APIVersion, Kind: target.Kind, Data: data,
		Metadata: map[string]any{"name": target.Name, "namespace": namespace, "annotations": map[string]string{
			"backup.example.com/of": strings.TrimPrefix(object.Metadata.Namespace+"/"+object.Metadata.Name, "/"),
		}},
	})
	stored, found := s.Get("check", target)
	if found && !has(stored, manifest) { // from an earlier attempt, before the object changed
		patch, err := json.Marshal(backup{Metadata: map[string]any{"uid": stored.Metadata.UID}, Data: data})
		if err != nil {
			s.Fail(err.Error())
		}
		s.Patch("renew", gleaner.PatchIntent{Target: target, Type: gleaner.PatchMerge, Patch: patch})
		stored, found = s.Get("check-again", target)
	}
	s.Until(found && has(stored, manifest), time.Second, "ConfigMap "+target.Name+" does not contain the manifest")
}

func has(stored gleaner.Object, manifest string) bool {
	var b backup
	return stored.Decode(&b) == nil && b.Data[file] == manifest
}

// put stores the manifest on a server that returns it on GET.
func put(s *finalize.Steps, url, manifest string) {
	_, found := s.Call("store", gleaner.HTTPIntent{
		Method: "PUT", URL: url, Body: manifest, Headers: map[string]string{"Content-Type": "application/json"},
	})
	if !s.Stopped() && !found {
		s.Fail("the url of the settings does not accept backups")
	}
	stored, found := s.Call("check", gleaner.HTTPIntent{Method: "GET", URL: url})
	s.Until(found && stored.Body == manifest, 10*time.Second, "the server does not return the manifest")
}

// nameOf returns a unique name for the object's backup, in lower case as names must
// be.
func nameOf(o gleaner.Object) string {
	return strings.ToLower(o.Kind) + "-" + o.Metadata.UID
}

// manifestOf returns the object in a form that can be applied again, without fields
// that the API server sets.
func manifestOf(o gleaner.Object) (string, error) {
	var whole, metadata map[string]json.RawMessage
	if err := o.Decode(&whole); err != nil {
		return "", err
	}
	if err := json.Unmarshal(whole["metadata"], &metadata); err != nil {
		return "", err
	}
	kept := map[string]json.RawMessage{}
	for _, name := range []string{"name", "namespace", "labels", "annotations"} {
		if value, ok := metadata[name]; ok {
			kept[name] = value
		}
	}
	var err error
	if whole["metadata"], err = json.Marshal(kept); err != nil {
		return "", err
	}
	delete(whole, "status")
	text, err := json.Marshal(whole) // sorted by name
	return string(text), err
}

// problem returns what is wrong with settings, and what to write instead.
func (set settings) problem() string {
	switch {
	case (set.Namespace == "") == (set.URL == ""):
		return "set either namespace, to store manifests in ConfigMaps, or url, to store them on a server by PUT"
	case set.URL != "" && (!strings.HasPrefix(set.URL, "https://") && !strings.HasPrefix(set.URL, "http://") || strings.HasSuffix(set.URL, "/")):
		return "url must be a URL without a slash at the end, such as https://backup.example.com/manifests"
	}
	return ""
}

// settingsOf decodes the settings, and returns what is wrong with them.
func settingsOf(r gleaner.Request) (set settings, problem string) {
	if err := r.DecodeSettings(&set); err != nil {
		return set, err.Error()
	}
	return set, set.problem()
}

// validate rejects invalid settings.
func validate(r gleaner.Request) (gleaner.Verdict, error) {
	if _, problem := settingsOf(r); problem != "" {
		return gleaner.Verdict{Decision: gleaner.Invalid, Reason: problem}, nil
	}
	return gleaner.Verdict{Decision: gleaner.Valid}, nil
}
