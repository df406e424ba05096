package main

import (
	"encoding/json"
	"strings"
	"time"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/finalize"
)

// settings are what users of the finalizer may set: where manifests go. It is one
// of the two.
type settings struct {
	Namespace string `json:"namespace"` // into ConfigMaps there
	URL       string `json:"url"`       // by PUT below that address, without a slash at its end
}

// finalizer stores the same under the same name each time: it may be asked again
// at any point. Nothing is believed to be stored but what was read back.
func finalizer(r gleaner.Request) (gleaner.Verdict, error) {
	return finalize.Run(r, func(s *finalize.Steps) {
		set, problem := settingsOf(r)
		if problem != "" {
			s.Fail(problem)
		}
		if r.Object.Is("", "Secret") {
			s.Fail("a Secret does not belong where everybody can read it: leave secrets out of the finalizer's resources")
		}
		manifest, err := manifestOf(r.Object)
		if err != nil {
			s.Fail("its manifest can't be written: " + err.Error())
		}
		if set.URL != "" {
			put(s, set.URL+"/"+nameOf(r.Object)+".json", manifest)
			return
		}
		store(s, set.Namespace, manifest)
	})
}

// backup is a ConfigMap with a manifest.
type backup struct {
	APIVersion string            `json:"apiVersion,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Metadata   map[string]any    `json:"metadata,omitempty"`
	Data       map[string]string `json:"data"`
}

const file = "manifest.json" // in a ConfigMap

// store keeps the manifest in a ConfigMap.
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
	if found && !has(stored, manifest) { // from an attempt before, after which the object has changed
		patch, err := json.Marshal(backup{Metadata: map[string]any{"uid": stored.Metadata.UID}, Data: data})
		if err != nil {
			s.Fail(err.Error())
		}
		s.Patch("renew", gleaner.PatchIntent{Target: target, Type: gleaner.PatchMerge, Patch: patch})
		stored, found = s.Get("check-again", target)
	}
	s.Until(found && has(stored, manifest), time.Second, "ConfigMap "+target.Name+" does not hold the manifest")
}

func has(stored gleaner.Object, manifest string) bool {
	var b backup
	return stored.Decode(&b) == nil && b.Data[file] == manifest
}

// put keeps the manifest on a server, which gives back what was put there.
func put(s *finalize.Steps, url, manifest string) {
	_, found := s.Call("store", gleaner.HTTPIntent{
		Method: "PUT", URL: url, Body: manifest, Headers: map[string]string{"Content-Type": "application/json"},
	})
	if !s.Stopped() && !found {
		s.Fail("there is nothing to put backups to at the settings' url")
	}
	stored, found := s.Call("check", gleaner.HTTPIntent{Method: "GET", URL: url})
	s.Until(found && stored.Body == manifest, 10*time.Second, "the server does not give the manifest back")
}

// nameOf is one that no other object's backup has, in lower case as names are.
func nameOf(o gleaner.Object) string {
	return strings.ToLower(o.Kind) + "-" + o.Metadata.UID
}

// manifestOf is the object as it could be applied again, without what the API
// server has added.
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
	text, err := json.Marshal(whole) // in the order of the names
	return string(text), err
}

// problem is what is wrong with settings, and what to write instead.
func (set settings) problem() string {
	switch {
	case (set.Namespace == "") == (set.URL == ""):
		return "write either namespace, of the ConfigMaps that manifests are stored in, or url, of a server that takes them by PUT"
	case set.URL != "" && (!strings.HasPrefix(set.URL, "https://") && !strings.HasPrefix(set.URL, "http://") || strings.HasSuffix(set.URL, "/")):
		return "url has to be an address without a slash at its end, such as https://backup.example.com/manifests"
	}
	return ""
}

// settingsOf reads the settings, and says what is wrong with them.
func settingsOf(r gleaner.Request) (set settings, problem string) {
	if err := r.DecodeSettings(&set); err != nil {
		return set, err.Error()
	}
	return set, set.problem()
}

// validate refuses settings that the finalizer could do nothing with.
func validate(r gleaner.Request) (gleaner.Verdict, error) {
	if _, problem := settingsOf(r); problem != "" {
		return gleaner.Verdict{Decision: gleaner.Invalid, Reason: problem}, nil
	}
	return gleaner.Verdict{Decision: gleaner.Valid}, nil
}
