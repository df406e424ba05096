package wasm_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm"
	"github.com/gleaner-dev/gleaner/policies/wasm/asm"
)

// requiredHooks are what the stock guest does differently if anything is different: the
// order of maps, randomness, the clock, memory that calls before have left or
// grown.
var requiredHooks = []string{"order", "random", "clock", "sleep", "calls", "print", "hoard"}

// faultText is all of an answer that must not depend on where and when it was given.
func faultText(a wasm.Evaluation) string {
	return fmt.Sprintf("%v %d units, %d bytes, %v", a.Verdict, a.Fuel, a.Memory, a.Log)
}

// underRace tells that the race detector looks on, with which evaluations take ten times as long.
var underRace bool

func TestEvaluate_IsDeterministic(t *testing.T) {
	calls := 1000
	if underRace {
		calls = 100
	}
	p := stockPolicy(t, wasm.Options{Instances: 3})
	want := map[string]string{}
	for _, do := range requiredHooks {
		a, err := p.EvaluateMetered(t.Context(), ask(do, 1))
		if err != nil {
			t.Fatal(err)
		}
		want[do] = faultText(a)
	}
	var callers sync.WaitGroup
	for range 6 {
		callers.Go(func() {
			for n := range calls {
				do := requiredHooks[n%len(requiredHooks)]
				a, err := p.EvaluateMetered(t.Context(), ask(do, 1))
				if err != nil || faultText(a) != want[do] {
					t.Errorf("%s gave %s, %v; before: %s", do, faultText(a), err, want[do])
					return
				}
			}
		})
	}
	callers.Wait()

	fresh := stockPolicy(t, wasm.Options{Instances: 3})
	for n := range calls {
		callers.Go(func() {
			do := requiredHooks[n%len(requiredHooks)]
			a, err := wasm.EvaluateOnce(t.Context(), fresh, ask(do, 1))
			if err != nil || a.Restored || faultText(a) != want[do] {
				t.Errorf("on a fresh instance (restored: %t) %s gave %s, %v; before: %s", a.Restored, do, faultText(a), err, want[do])
			}
		})
	}
	callers.Wait()
}

func TestEvaluate_FreshEqualsRestored(t *testing.T) {
	m, err := stockModule()
	if err != nil {
		t.Fatal(err)
	}
	p := stockPolicy(t, wasm.Options{})
	for _, do := range requiredHooks {
		request := ask(do, 1)
		document, units, err := wasm.EvaluateFresh(t.Context(), m, request)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := hostabi.ParseVerdict(request.Hook, []byte(document))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			a, err := p.EvaluateMetered(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			if a.Verdict.Reason != fresh.Reason || a.Fuel != units {
				t.Errorf("%s: a fresh instance gives %q for %d units, and one that was copied or restored %q for %d",
					do, fresh.Reason, units, a.Verdict.Reason, a.Fuel)
			}
		}
	}
}

// writeVerdict is set for a process that prints its answers, and names the module.
const writeVerdict = "GLEANER_TEST_ANSWER_IN"

func TestEvaluate_IsDeterministicAcrossProcesses(t *testing.T) {
	if folder := os.Getenv(writeVerdict); folder != "" {
		answer(t, folder)
		return
	}
	if underRace {
		t.Skip("other processes do the work, one after another: there is nothing to race")
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "guest.wasm"), stockCode(t), 0o600); err != nil {
		t.Fatal(err)
	}
	answers, caches := map[string]bool{}, map[string]bool{}
	for range 2 {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		c.Env = append(os.Environ(), writeVerdict+"="+folder)
		output, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		file, err := os.ReadFile(filepath.Join(folder, "answers"))
		if err != nil {
			t.Fatal(err)
		}
		answers[string(file)] = true
		caches[listing(t, filepath.Join(folder, "cache"))] = true
	}
	if len(answers) != 1 {
		t.Errorf("two processes gave %v", answers)
	}
	if len(caches) != 1 {
		t.Errorf("the second process compiled the module again: %v", caches)
	}
}

// listing tells of the files below a folder, and when each was written.
func listing(t *testing.T, folder string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all = append(all, fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano()))
		return nil
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("the cache has %d files: %v", len(all), err)
	}
	return strings.Join(all, "\n")
}

// answer is the other process. The second finds the module compiled on disk.
func answer(t *testing.T, folder string) {
	e, err := wasm.New(wasm.Config{CacheDir: filepath.Join(folder, "cache")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	code, err := os.ReadFile(filepath.Join(folder, "guest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	p := policy(t, load(t, e, code), wasm.Options{})
	var all []string
	for _, do := range append(requiredHooks, "labels") {
		a, err := p.EvaluateMetered(t.Context(), ask(do, 1))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, faultText(a))
	}
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "answers"), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEvaluate_KeepsNoState(t *testing.T) {
	m := newModule()
	counter := m.Global(0)
	const at, yes = 4096, `{"decision": "Abstain", "reason": "it remembers"}`
	m.Data(at, []byte(yes))
	tell := asm.Call(m.write, at, int32(len(yes)))
	code := m.answers(abstain,
		asm.GlobalGet(counter), asm.If(tell), asm.I32Const(1), asm.GlobalSet(counter),
		asm.I32Load(8), asm.If(tell), asm.I32Store(8, 1),
		asm.I32Load(60000), asm.If(tell), asm.I32Store(60000, 1))
	p := policy(t, load(t, engine(t), code), wasm.Options{Instances: 2})
	for range 100 {
		a, err := p.EvaluateMetered(t.Context(), ask("", 0))
		if err != nil || a.Verdict.Reason != "" {
			t.Fatalf("got %v, %v", a.Verdict, err)
		}
	}
}

func TestEvaluate_SurvivesHostileCalls(t *testing.T) {
	neighbour := stockPolicy(t, wasm.Options{})
	var bad []*wasm.Policy
	for _, c := range atCall {
		bad = append(bad, policy(t, load(t, engine(t), c.code(newModule())), wasm.Options{
			Limits: wasm.Limits{Fuel: 1_000_000, Memory: 4 << 20},
		}))
	}
	var callers sync.WaitGroup
	for n := range 1000 {
		callers.Go(func() {
			p := bad[n%len(bad)]
			_, err := p.Evaluate(t.Context(), ask("", 0))
			if err == nil || !strings.HasPrefix(err.Error(), "policy test is at fault: ") {
				t.Errorf("%s: got %v, want a fault", atCall[n%len(bad)].claim, err)
			}
			healthy(t, neighbour)
		})
	}
	callers.Wait()
}

func TestATimeoutIsSeenWhenTheHostIsCalled(t *testing.T) {
	p := policy(t, load(t, engine(t), newModule().answers(abstain)), wasm.Options{Limits: wasm.Limits{Timeout: 1}})
	_, err := p.Evaluate(t.Context(), ask("", 0))
	fault := wantFault(t, err, policies.FaultTimedOut)
	if want := "it took longer than its timeout of 1ns"; !strings.Contains(fault.Message, want) {
		t.Errorf("the message is %q, want %q in it", fault.Message, want)
	}
}
