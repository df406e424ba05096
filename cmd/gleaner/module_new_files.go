package main

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"text/template"

	"github.com/gleaner-dev/gleaner/policies/source"
)

// templates are the files of modules, by language and hook.
//
//go:embed module_new
var templates embed.FS

// builtModule is the file that gleaner module build writes, unless it is told
// otherwise: compressed, since a ConfigMap holds no more than 1 MiB.
const builtModule = "module.wasm.gz"

// files are all that is written.
func (o *newModule) files() ([]newFile, error) {
	files, err := o.own()
	if err != nil {
		return nil, err
	}
	for _, from := range map[string]func() []sdkModule{"go": goSDK, "rego": regoSDK}[o.lang]() {
		copied, err := copies(from.files, path.Join("gleaner-sdk", from.folder))
		if err != nil {
			return nil, err
		}
		files = append(files, copied...)
	}
	return files, nil
}

// own are the files that are the module's author's from now on.
func (o *newModule) own() ([]newFile, error) {
	all := [][2]string{ // to, from
		{"README.md", o.lang + "/README.md"},
		{"cases.yaml", "all/" + o.hook + ".cases.yaml"},
		{"resources.yaml", "all/" + o.hook + ".resources.yaml"},
		{"kustomization.yaml", "all/kustomization.yaml"},
	}
	if o.lang == "rego" {
		all = append(all, [2]string{o.source(), "rego/" + o.hook + ".policy.rego"}, [2]string{o.sourceTest(), "rego/" + o.hook + ".policy_test.rego"})
	} else {
		all = append(all,
			[2]string{"go.mod", "go/go.mod"}, [2]string{".gitignore", "go/gitignore"}, [2]string{"main.go", "go/" + o.hook + ".main.go"},
			[2]string{o.source(), "go/" + o.hook + ".module.go"}, [2]string{o.sourceTest(), "go/" + o.hook + ".module_test.go"})
	}
	var files []newFile
	for _, f := range all {
		text, err := o.fill("module_new/" + f[1] + ".tmpl")
		if err != nil {
			return nil, err
		}
		files = append(files, newFile{f[0], text})
	}
	return files, nil
}

// fill fills a template in.
func (o *newModule) fill(name string) ([]byte, error) {
	t, err := template.ParseFS(templates, name)
	if err != nil {
		return nil, fmt.Errorf("read template %s: %w", name, err)
	}
	names := map[string]string{"Name": o.name, "Hook": o.hook, "Source": o.source(), "Module": builtModule, "Engine": string(source.Wasm)}
	if o.lang == "rego" {
		names["Module"], names["Engine"] = o.source(), string(source.Rego)
	}
	var text bytes.Buffer
	if err := t.Execute(&text, names); err != nil {
		return nil, fmt.Errorf("fill in template %s: %w", name, err)
	}
	return text.Bytes(), nil
}

// sdkModule is a part of the SDK that comes along, and below which folder.
type sdkModule struct {
	folder string
	files  fs.FS
}

// copies are the files of a part of the SDK without its tests, and without what
// embeds them.
func copies(from fs.FS, folder string) ([]newFile, error) {
	var files []newFile
	err := fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_test.rego") || name == "sources.go" {
			return err
		}
		text, err := fs.ReadFile(from, name)
		files = append(files, newFile{path.Join(folder, name), text})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("copy the SDK: %w", err)
	}
	return files, nil
}
