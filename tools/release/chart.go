package main

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

const chartFolder = "config/chart"

// chart packages the Helm chart with a version, and with the image by its digest. It returns the name of the archive and its content.
func (r *release) chart(digest string) (string, []byte, error) {
	loaded, err := loader.LoadDir(filepath.Join(r.root, filepath.FromSlash(chartFolder)))
	if err != nil {
		return "", nil, fmt.Errorf("read the chart: %w", err)
	}
	files := map[string][]byte{}
	for _, f := range loaded.Raw {
		files[f.Name] = f.Data
	}
	version := strings.TrimPrefix(r.version, "v") // Helm's versions have no v
	err = replaceLines(files["Chart.yaml"], map[string]string{"version": version, "appVersion": r.version}, func(text []byte) { files["Chart.yaml"] = text })
	if err == nil {
		err = replaceLines(files["values.yaml"], map[string]string{"  repository": r.registry, "  digest": digest}, func(text []byte) { files["values.yaml"] = text })
	}
	if err != nil {
		return "", nil, fmt.Errorf("package the chart: %w", err)
	}
	var entries []entry
	for _, name := range slices.Sorted(maps.Keys(files)) {
		entries = append(entries, entry{name: path.Join(loaded.Name(), name), mode: 0o644, data: files[name]})
	}
	data, err := tarball(entries)
	return fmt.Sprintf("%s-%s.tgz", loaded.Name(), version), data, err
}

// replaceLines replaces the values of keys in a YAML document that each have a line of their own, and keeps everything else.
func replaceLines(text []byte, values map[string]string, set func([]byte)) error {
	for key, value := range values {
		line := regexp.MustCompile(`(?m)^` + key + `: .*$`)
		if found := line.FindAll(text, -1); len(found) != 1 {
			return fmt.Errorf("%d lines with the key %s instead of one", len(found), strings.TrimSpace(key))
		}
		text = line.ReplaceAll(text, []byte(key+": "+value))
	}
	set(bytes.Clone(text))
	return nil
}
