package policytest_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/policytest"
	"github.com/gleaner-dev/gleaner/test/npm"
)

// The policy that the Go SDK is shown with answers the cases as a module, on a
// host that is just enough for it: neither limits nor determinism are seen here.
func TestGoModule_PassesCases(t *testing.T) {
	for compiler, build := range map[string][]string{
		"stock Go": {"go", "build", "-buildmode=c-shared", "-o", "OUT", "./examples/keep-data"},
		"TinyGo":   {"tinygo", "build", "-target=wasip1", "-buildmode=c-shared", "-scheduler=none", "-gc=leaking", "-opt=2", "-o", "OUT", "./examples/keep-data"},
	} {
		t.Run(compiler, func(t *testing.T) {
			if _, err := exec.LookPath(build[0]); err != nil {
				t.Skipf("%s is not installed", compiler)
			}
			checkKeepData(t, newGuest(t, builtModule(t, build)))
		})
	}
}

// The example that is written against the documentation of the ABI alone, without an SDK and
// without WASI, answers the same cases.
func TestAssemblyScriptModule_PassesCases(t *testing.T) {
	g := newGuest(t, assemblyScriptModule(t))
	checkKeepData(t, g)
	if imports := g.compiled.ImportedFunctions(); len(imports) != len(g.imports()) {
		t.Errorf("it has %d imports, and %d of %s", len(imports), len(g.imports()), hostabi.ImportModule)
	}
}

// checkKeepData checks a module of the policy.
func checkKeepData(t *testing.T, g guest) {
	t.Helper()
	want := []string{"collect", "propagate", "validate"}
	if diff := cmp.Diff(want, g.hooks()); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"log", "request_read", "verdict_write"}, g.imports()); diff != "" {
		t.Errorf("imports (-want +got):\n%s", diff)
	}
	policytest.Run(t, g, "testdata/keep-data.yaml")
}

// Most requests fit into the room that a module has at first. One that does not
// is asked for once more.
func TestGoModule_ReadsLargeRequest(t *testing.T) {
	checkLargeRequests(t, newGuest(t, builtModule(t, []string{"go", "build", "-buildmode=c-shared", "-o", "OUT", "./examples/keep-data"})))
}

func TestAssemblyScriptModule_ReadsLargeRequest(t *testing.T) {
	checkLargeRequests(t, newGuest(t, assemblyScriptModule(t)))
}

func checkLargeRequests(t *testing.T, g guest) {
	t.Helper()
	for _, length := range []int{10, 32 << 10, 300 << 10, 1 << 20, hostabi.MaxRequestBytes - 4096} {
		r := hostabi.Request{Hook: hostabi.HookCollect, Object: hostabi.Object{APIVersion: "v1", Kind: "PersistentVolumeClaim"}}
		r.Object.Metadata = hostabi.Metadata{Name: "p", Annotations: map[string]string{"keep": "true", "long": strings.Repeat("x", length)}}
		verdict, err := g.Evaluate(t.Context(), r)
		if err != nil || verdict.Decision != hostabi.DecisionOrphan {
			t.Errorf("with %d bytes more: %v, %v", length, verdict, err)
		}
	}
}

// A handler's error is told in the module's log, and ends the call without a
// verdict.
func TestGoModule_ErrorGivesNoVerdict(t *testing.T) {
	g := newGuest(t, builtModule(t, []string{"go", "build", "-buildmode=c-shared", "-o", "OUT", "./examples/keep-data"}))
	checkUnknownSetting(t, g, `error: decode settings: json: unknown field "wiat"`)
}

// An error in AssemblyScript calls abort, which the example replaces.
func TestAssemblyScriptModule_ErrorGivesNoVerdict(t *testing.T) {
	checkUnknownSetting(t, newGuest(t, assemblyScriptModule(t)), `error: settings: unknown field "wiat" (assembly/index.ts:`)
}

func checkUnknownSetting(t *testing.T, g guest, wantFault string) {
	t.Helper()
	err := policytest.Check(t.Context(), g, policytest.Case{
		Request: hostabi.Request{
			Hook: hostabi.HookCollect, Object: hostabi.Object{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			Policy: hostabi.Policy{Settings: []byte(`{"wiat":"1h"}`)},
		},
		WantFault: wantFault,
	})
	if err != nil {
		t.Error(err)
	}
}

// builtAssemblyScript is the module that the first test built.
var builtAssemblyScript []byte

// assemblyScriptModule builds the example in AssemblyScript as its README does.
func assemblyScriptModule(t *testing.T) []byte {
	t.Helper()
	if builtAssemblyScript != nil {
		return builtAssemblyScript
	}
	code, err := os.ReadFile(filepath.Join(npm.Run(t, "../../examples/assemblyscript", "build"), "module.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	builtAssemblyScript = code
	return code
}

// builtModule builds the example, for Wasm.
func builtModule(t *testing.T, build []string) []byte {
	t.Helper()
	for _, folder := range []string{"../../hostabi", "../../sdk/go"} {
		readSources(t, folder)
	}
	out := filepath.Join(t.TempDir(), "module.wasm")
	args := slices.Clone(build[1:])
	args[slices.Index(args, "OUT")] = out
	cmd := exec.CommandContext(t.Context(), build[0], args...)
	cmd.Dir = "../../sdk/go"
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	code, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// readSources reads all files, so that go test runs these tests again when one
// has changed: it can't see what another process builds.
func readSources(t *testing.T, folder string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".go") {
			_, err = os.ReadFile(name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// guest asks a module, on a fresh instance each time.
type guest struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
}

// callKey is where the call that is going on stands in its context.
type callKey struct{}

type call struct {
	request, verdict []byte
	log              []string
}

func newGuest(t *testing.T, code []byte) guest {
	t.Helper()
	r := wazero.NewRuntime(t.Context())
	t.Cleanup(func() {
		if err := r.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	wasi_snapshot_preview1.MustInstantiate(t.Context(), r)
	b := r.NewHostModuleBuilder(hostabi.ImportModule)
	b.NewFunctionBuilder().WithFunc(requestRead).Export(hostabi.ImportRequestRead)
	b.NewFunctionBuilder().WithFunc(verdictWrite).Export(hostabi.ImportVerdictWrite)
	b.NewFunctionBuilder().WithFunc(writeLog).Export(hostabi.ImportLog)
	if _, err := b.Instantiate(t.Context()); err != nil {
		t.Fatal(err)
	}
	compiled, err := r.CompileModule(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	return guest{r, compiled}
}

func requestRead(ctx context.Context, m api.Module, ptr, limit uint32) uint32 {
	c := ctx.Value(callKey{}).(*call)
	if len(c.request) <= int(limit) && !m.Memory().Write(ptr, c.request) {
		panic("request_read points outside of the memory")
	}
	return uint32(len(c.request))
}

func verdictWrite(ctx context.Context, m api.Module, ptr, length uint32) {
	data, ok := m.Memory().Read(ptr, length)
	if c := ctx.Value(callKey{}).(*call); !ok || c.verdict != nil {
		panic("verdict_write is called twice, or points outside of the memory")
	} else {
		c.verdict = slices.Clone(data)
	}
}

func writeLog(ctx context.Context, m api.Module, level, ptr, length uint32) {
	data, ok := m.Memory().Read(ptr, length)
	if !ok {
		panic("log points outside of the memory")
	}
	c := ctx.Value(callKey{}).(*call)
	c.log = append(c.log, hostabi.LogLevel(level).String()+": "+string(data))
}

func (g guest) hooks() []string {
	var names []string
	for name := range g.compiled.ExportedFunctions() {
		if name != "_initialize" && slices.Contains(hostabi.Hooks(), hostabi.Hook(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (g guest) imports() []string {
	var names []string
	for _, f := range g.compiled.ImportedFunctions() {
		if module, name, _ := f.Import(); module == hostabi.ImportModule {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Name implements policies.Evaluator.
func (guest) Name() string { return "guest" }

// Evaluate implements policies.Evaluator.
func (g guest) Evaluate(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	data, err := hostabi.MarshalRequest(r)
	if err != nil {
		return hostabi.Verdict{}, err
	}
	c := &call{request: data}
	ctx = context.WithValue(ctx, callKey{}, c)
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize")
	instance, err := g.runtime.InstantiateModule(ctx, g.compiled, config)
	if err != nil {
		return hostabi.Verdict{}, fmt.Errorf("instantiate: %w", err)
	}
	defer instance.Close(ctx)
	hook := instance.ExportedFunction(string(r.Hook))
	if hook == nil {
		return hostabi.Verdict{}, errors.New("there is no such hook")
	}
	if _, err := hook.Call(ctx); err != nil {
		return hostabi.Verdict{}, &policies.Fault{Policy: g.Name(), Message: strings.Join(append(c.log, err.Error()), "\n")}
	}
	verdict, err := hostabi.ParseVerdict(r.Hook, c.verdict)
	if err != nil {
		return hostabi.Verdict{}, &policies.Fault{Policy: g.Name(), Message: err.Error()}
	}
	return verdict, nil
}
