package module

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"text/template"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// templates are the files of new modules, by language and hook.
//
//go:embed module_new
var templates embed.FS

// BuiltModule is the default output file of gleaner module build: compressed, since a
// ConfigMap is limited to 1 MiB.
const BuiltModule = "module.wasm.gz"

// files returns all files to write.
func (o *newModule) files() ([]newFile, error) {
	files, err := o.authorFiles()
	if err != nil {
		return nil, err
	}
	for _, from := range languages[o.lang].sdk() {
		copied, err := sdkFiles(from.files, path.Join("gleaner-sdk", from.dir))
		if err != nil {
			return nil, err
		}
		files = append(files, copied...)
	}
	return files, nil
}

// authorFiles returns the files for the author to edit.
func (o *newModule) authorFiles() ([]newFile, error) {
	all := [][2]string{ // to, from
		{"README.md", o.lang + "/README.md"},
		{"cases.yaml", "all/" + o.hook + ".cases.yaml"},
		{"resources.yaml", o.resources()},
		{"kustomization.yaml", "all/kustomization.yaml"},
	}
	switch o.lang {
	case "rego":
		all = append(all, [2]string{o.source(), "rego/" + o.hook + ".policy.rego"}, [2]string{o.sourceTest(), "rego/" + o.hook + ".policy_test.rego"},
			[2]string{".regal/config.yaml", "rego/regal.yaml"})
	case "rust":
		all = append(all, [2]string{"Cargo.toml", "rust/Cargo.toml"}, [2]string{".gitignore", "rust/gitignore"}, [2]string{o.source(), "rust/" + o.hook + ".module.rs"})
	default:
		all = append(all,
			[2]string{"go.mod", "go/go.mod"}, [2]string{".gitignore", "go/gitignore"}, [2]string{"main.go", "go/" + o.hook + ".main.go"},
			[2]string{o.source(), "go/" + o.hook + ".module.go"}, [2]string{o.sourceTest(), "go/" + o.hook + ".module_test.go"})
	}
	if o.lang != "rego" && o.hook == string(hostabi.HookFinalize) {
		all = append(all, [2]string{"settings.schema.json", "all/finalize.settings.schema.json"})
	}
	var files []newFile
	for _, f := range all {
		text, err := o.render("module_new/" + f[1] + ".tmpl")
		if err != nil {
			return nil, err
		}
		files = append(files, newFile{f[0], text})
	}
	return files, nil
}

// render executes a template.
func (o *newModule) render(name string) ([]byte, error) {
	t, err := template.ParseFS(templates, name)
	if err != nil {
		return nil, fmt.Errorf("read template %s: %w", name, err)
	}
	names := map[string]string{"Name": o.name, "Hook": o.hook, "Source": o.source(), "Module": BuiltModule, "Engine": string(source.Wasm)}
	if o.lang == "rego" {
		names["Module"], names["Engine"] = o.source(), string(source.Rego)
	}
	var text bytes.Buffer
	if err := t.Execute(&text, names); err != nil {
		return nil, fmt.Errorf("execute template %s: %w", name, err)
	}
	return text.Bytes(), nil
}

// sdkModule is a part of the SDK to copy, and its target directory.
type sdkModule struct {
	dir   string
	files fs.FS
}

// sdkFiles returns the files of a part of the SDK, without tests and the file that embeds them.
func sdkFiles(from fs.FS, dir string) ([]newFile, error) {
	var files []newFile
	err := fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_test.rego") || name == "sources.go" {
			return err
		}
		text, err := fs.ReadFile(from, name)
		files = append(files, newFile{path.Join(dir, name), text})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("copy the SDK: %w", err)
	}
	return files, nil
}
