package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
)

// checksums returns the digests of files as sha256sum checks them.
func checksums(files map[string][]byte) []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "%s  %s\n", sum(files[name]), name)
	}
	return b.Bytes()
}

// statement says how files were made: a statement of in-toto with a predicate of SLSA,
// https://slsa.dev/spec/v1.0/provenance. It is not signed: who publishes the release signs it.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     predicate `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

type predicate struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string            `json:"buildType"`
	ExternalParameters   map[string]string `json:"externalParameters"`
	InternalParameters   map[string]string `json:"internalParameters"`
	ResolvedDependencies []dependency      `json:"resolvedDependencies,omitempty"`
}

type dependency struct {
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest"`
}

type runDetails struct {
	Builder builder `json:"builder"`
}

type builder struct {
	ID string `json:"id"`
}

// provenance says how the files and the image were made.
func (r *release) provenance(files map[string][]byte, image string) ([]byte, error) {
	s := statement{
		Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1",
		Predicate: predicate{
			BuildDefinition: buildDefinition{
				BuildType:          repository + "/blob/main/docs/install.md#releases",
				ExternalParameters: map[string]string{"command": "make release", "version": r.version, "image": r.registry},
				InternalParameters: map[string]string{"go": runtime.Version()},
			},
			RunDetails: runDetails{builder{cmp.Or(os.Getenv("RELEASE_BUILDER"), repository+"/blob/main/Makefile")}},
		},
	}
	if r.revision != "" {
		s.Predicate.BuildDefinition.ResolvedDependencies = []dependency{{"git+" + repository, map[string]string{"gitCommit": r.revision}}}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s.Subject = append(s.Subject, subject{name, map[string]string{"sha256": sum(files[name])}})
	}
	s.Subject = append(s.Subject, subject{r.registry, map[string]string{"sha256": image[len("sha256:"):]}})
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}
