package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/rego"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/wasm"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// mostModule is the most bytes that a module may have, once decompressed.
const mostModule = 64 << 20

// moduleFacts are what inspect shows.
type moduleFacts struct {
	Engine   string         `json:"engine"` // wasm or rego
	Digest   string         `json:"sha256"`
	Size     int            `json:"size"` // bytes of WebAssembly
	Hooks    []hostabi.Hook `json:"hooks"`
	Imports  []string       `json:"imports"`
	Compiled time.Duration  `json:"compileNanoseconds"`
	InitFuel int64          `json:"initFuel"`
}

// loaded is a module that can be asked, of whatever engine.
type loaded struct {
	facts moduleFacts
	ask   func(context.Context, hostabi.Request) (answer, error)
	close func()
}

type answer struct {
	verdict hostabi.Verdict
	usage   sandbox.Usage
	log     wasm.Log
}

// loadModule takes a module in as the operator would: a file of WebAssembly,
// plain or compressed with gzip, or files or a folder of Rego.
func loadModule(ctx context.Context, limits sandbox.Limits, names []string) (*loaded, error) {
	files, err := regoFiles(names)
	if err != nil {
		return nil, err
	}
	if len(files) != 0 {
		return loadRego(ctx, limits, names[0], files)
	}
	if len(names) != 1 {
		return nil, usageError{errors.New("several files are taken together only if all are Rego; name one module")}
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		return nil, fmt.Errorf("read module: %w", err)
	}
	return loadWasm(ctx, limits, names[0], data)
}

// regoFiles reads the files of Rego among the names and in the folders among
// them: none if there is no Rego at all.
func regoFiles(names []string) ([]rego.File, error) {
	var paths []string
	others := 0
	for _, name := range names {
		info, err := os.Stat(name)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read module: %w", err)
		case info.IsDir():
			found, err := filepath.Glob(filepath.Join(name, "*.rego"))
			if err != nil || len(found) == 0 {
				return nil, fmt.Errorf("read module: no file in the folder %s ends in .rego", name)
			}
			paths = append(paths, found...)
		case strings.HasSuffix(name, ".rego"):
			paths = append(paths, name)
		default:
			others++
		}
	}
	if len(paths) != 0 && others != 0 {
		return nil, usageError{errors.New("files of Rego and others were named together; a module is one or the other")}
	}
	var files []rego.File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read module: %w", err)
		}
		files = append(files, rego.File{Name: path, Text: string(text)})
	}
	return files, nil
}

func loadWasm(ctx context.Context, limits sandbox.Limits, name string, data []byte) (*loaded, error) {
	code, err := source.Decompress(data, mostModule)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if !bytes.HasPrefix(code, []byte("\x00asm")) && !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return nil, fmt.Errorf("%s is neither WebAssembly, nor that compressed with gzip, nor named .rego", name)
	}
	engine, err := wasm.New(wasm.Config{})
	if err != nil {
		return nil, err
	}
	began := time.Now()
	module, err := engine.Load(ctx, code)
	if err != nil {
		engine.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	took := time.Since(began)
	policy, err := wasm.NewPolicy(ctx, module, wasm.Options{Name: name, Limits: limits, Instances: 1})
	if err != nil {
		module.Close()
		engine.Close()
		return nil, err
	}
	return &loaded{
		facts: moduleFacts{
			Engine: "wasm", Digest: module.Digest, Size: module.Size, Hooks: module.Hooks, Imports: module.Imports,
			Compiled: took, InitFuel: policy.InitFuel,
		},
		ask: func(ctx context.Context, r hostabi.Request) (answer, error) {
			a, err := policy.Ask(ctx, r)
			return answer{a.Verdict, a.Usage, a.Log}, err
		},
		close: func() { policy.Close(); module.Close(); engine.Close() },
	}, nil
}

func loadRego(ctx context.Context, limits sandbox.Limits, name string, files []rego.File) (*loaded, error) {
	engine, err := rego.New(rego.Config{})
	if err != nil {
		return nil, err
	}
	began := time.Now()
	module, err := engine.Load(ctx, files)
	if err != nil {
		engine.Close()
		return nil, err // names the file
	}
	took := time.Since(began)
	policy, err := rego.NewPolicy(ctx, module, rego.Options{Name: name, Limits: limits, Instances: 1})
	if err != nil {
		module.Close()
		engine.Close()
		return nil, err
	}
	return &loaded{
		facts: moduleFacts{
			Engine: "rego", Digest: digestOf(files, false), Size: module.Size, Hooks: module.Hooks, Imports: module.Builtins, Compiled: took,
		},
		ask: func(ctx context.Context, r hostabi.Request) (answer, error) {
			a, err := policy.Ask(ctx, r)
			return answer{verdict: a.Verdict, usage: a.Usage}, err
		},
		close: func() { policy.Close(); module.Close(); engine.Close() },
	}, nil
}
