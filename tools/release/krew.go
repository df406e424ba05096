package main

import (
	"crypto/sha256"
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/krew/pkg/index"
	"sigs.k8s.io/yaml"
)

const (
	repository = "https://github.com/gleaner-dev/gleaner"
	downloads  = repository + "/releases/download/"
)

// krew returns the manifest with which krew, the plugin manager of kubectl, installs gleaner.
func (r *release) krew(archives []archive) ([]byte, error) {
	plugin := index.Plugin{
		TypeMeta:   metav1.TypeMeta{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin"},
		ObjectMeta: metav1.ObjectMeta{Name: "gleaner"},
		Spec: index.PluginSpec{
			Version: r.version, Homepage: repository,
			ShortDescription: "Explain, preview and undo garbage collection",
			Description: "Shows why an object was deleted or is stuck, what a deletion would take with it, and who owns\n" +
				"whom; restores deleted objects from an archive; tests and replays policies. Much of it works\n" +
				"without the operator of Gleaner, the programmable garbage collector for Kubernetes.\n",
		},
	}
	for _, a := range archives {
		plugin.Spec.Platforms = append(plugin.Spec.Platforms, index.Platform{
			URI: downloads + r.version + "/" + a.name, Sha256: sum(a.data), Bin: a.platform.program(),
			Files:    []index.FileOperation{{From: a.platform.program(), To: "."}, {From: "LICENSE", To: "."}},
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"os": a.platform.os, "arch": a.platform.arch}},
		})
	}
	return yaml.Marshal(plugin)
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}
