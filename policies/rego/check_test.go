package rego

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
)

const verdict = `{"decision": "Abstain"}`

func TestRefusedAtLoad(t *testing.T) {
	for claim, c := range map[string]struct {
		source string
		want   string // all of the message
	}{
		"another package": {
			"package policy\ncollect := 1",
			"a.rego:1: package policy: a policy is in package gleaner, or below it; write tests in a file that ends in _test.rego",
		},
		"the library's package": {
			"package gleaner.sdk.mine\ncollect := 1",
			"a.rego:1: package gleaner.sdk.mine: gleaner.sdk is reserved for Gleaner's library",
		},
		"a hook that is a package": {
			"package gleaner.collect\ndecision := \"Delete\"",
			"a.rego:1: package gleaner.collect: collect is a hook, and must be a rule of package gleaner",
		},
		"no hook": {
			"package gleaner\ncolect := 1",
			"package gleaner has no hook: it needs at least one rule named propagate, collect, protect, retain, finalize or validate",
		},
		"a hook in a package below": {
			"package gleaner.mine\ncollect := 1",
			"package gleaner has no hook: it needs at least one rule named propagate, collect, protect, retain, finalize or validate",
		},
		"a hook that is a function": {
			"package gleaner\n\ncollect(x) := x",
			"a.rego:3: collect is a function: a hook is a rule without arguments, and its request is input",
		},
		"a hook that is a set": {
			"package gleaner\n\ncollect contains 1",
			"a.rego:3: collect is a set: a hook's value is one verdict; write collect := {…} if …",
		},
		"a hook that is a partial rule": {
			"package gleaner\n\ncollect.decision := \"Delete\"",
			"a.rego:3: collect is a partial rule: a hook's value is one verdict; write collect := {…} if …",
		},
		"a hook with a key that varies": {
			"package gleaner\n\ncollect[x] := 1 if some x in input.list",
			"a.rego:3: collect is a partial rule: a hook's value is one verdict; write collect := {…} if …",
		},
		"the network": {
			"package gleaner\ncollect := 1 if {\n\tx := http.send({\"method\": \"get\", \"url\": \"http://localhost\"})\n\tx.status_code == 200\n}",
			"a.rego:3: http.send is not allowed: a policy does no I/O; a finalizer can return an http intent",
		},
		"the clock, in a comprehension that nobody asks for": {
			"package gleaner\ncollect := 1\nunused := [x | x := [time.now_ns()][_]]",
			"a.rego:3: time.now_ns is not allowed: the same request must always give the same verdict; use time.parse_rfc3339_ns(input.time)",
		},
		"randomness, by an alias that hides nothing": {
			"package gleaner\ncollect := 1 if rand.intn(\"x\", 2) == 1",
			"a.rego:2: rand.intn is not allowed: the same request must always give the same verdict; input.idempotencyKey is different for each object",
		},
		"two at once, in order": {
			"package gleaner\ncollect := opa.runtime()\npropagate := uuid.rfc4122(\"x\")",
			"a.rego:2: opa.runtime is not allowed: a policy has no data but its input; settings are in input.policy.settings\n" +
				"a.rego:3: uuid.rfc4122 is not allowed: the same request must always give the same verdict; use input.object.metadata.uid",
		},
		"a document": {
			"package gleaner\ncollect := data.config.verdict",
			"a.rego:2: data.config.verdict does not exist: a policy has no data but its input; settings are in input.policy.settings",
		},
		"a rule that is misspelt": {
			"package gleaner\ncollect := data.gleaner.verdcit\nverdict := 1",
			"a.rego:2: data.gleaner.verdcit does not exist: a policy has no data but its input; settings are in input.policy.settings",
		},
		"a part of the library that isn't there": {
			"package gleaner\nimport data.gleaner.sdk.verdict\ncollect := verdict.delet",
			"a.rego:3: data.gleaner.sdk.verdict.delet does not exist: a policy has no data but its input; settings are in input.policy.settings",
		},
		"a mistake in the syntax": {
			"package gleaner\ncollect := {",
			"a.rego:2: unexpected eof token\na.rego:2: unexpected eof token: expected rule value term (e.g., collect := <VALUE> { ... })",
		},
		"the old syntax": {
			"package gleaner\ncollect = 1 { input.x }",
			"a.rego:2: `if` keyword is required before rule body",
		},
		"a variable that is never bound": {
			"package gleaner\ncollect := x if input.x == y",
			"a.rego:2: var x is unsafe",
		},
		"recursion": {
			"package gleaner\ncollect := collect",
			"a.rego:2: rule data.gleaner.collect is recursive: data.gleaner.collect -> data.gleaner.collect",
		},
		"nothing at all": {"", "a.rego:0: empty module"},
	} {
		t.Run(claim, func(t *testing.T) {
			_, err := compileFiles(t.Context(), []File{{Name: "a.rego", Text: c.source}})

			var refusal *Error
			if !errors.As(err, &refusal) {
				t.Fatalf("got %v, want a refusal", err)
			}
			if diff := cmp.Diff(c.want, refusal.Message); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAccepted(t *testing.T) {
	for claim, c := range map[string]struct {
		files []File
		want  []hostabi.Hook
	}{
		"hooks in several files": {
			[]File{
				{"a.rego", "package gleaner\ncollect := x if x := data.gleaner.shared.verdict"},
				{"b.rego", "package gleaner\npropagate := " + verdict},
				{"c.rego", "package gleaner.shared\nverdict := " + verdict},
			},
			[]hostabi.Hook{"propagate", "collect"},
		},
		"tests are left out, with what only tests may call": {
			[]File{
				{"a.rego", "package gleaner\nvalidate := " + verdict},
				{"a_test.rego", "package gleaner_test\ntest_now if time.now_ns() > 0"},
			},
			[]hostabi.Hook{"validate"},
		},
		"a document that is given by with": {
			[]File{{"a.rego", "package gleaner\nfinalize := v if v := x with data.config as {\"v\": 1}\nx := data.config.v"}},
			[]hostabi.Hook{"finalize"},
		},
		"a name of its own that hides a built-in": {
			[]File{
				{"a.rego", "package gleaner\nimport data.gleaner.http\ncollect := http.send(1)"},
				{"b.rego", "package gleaner.http\nsend(x) := x"},
			},
			[]hostabi.Hook{"collect"},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			got, err := compileFiles(t.Context(), c.files)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.hooks); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCompile_IsDeterministic(t *testing.T) {
	files := []File{
		{"b.rego", "package gleaner.shared\nf(x) := sprintf(\"%v\", [x])\ng[k] := v if some k, v in input"},
		{"a.rego", "package gleaner\nimport data.gleaner.sdk.owners\nimport data.gleaner.shared\ncollect := shared.f(shared.g) if owners.all_absent\npropagate := 1"},
	}
	reversed := []File{files[1], files[0]}
	first, err := compileFiles(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := compileFiles(t.Context(), reversed)
		if err != nil {
			t.Fatal(err)
		}
		if string(again.code) != string(first.code) {
			t.Fatal("the module differs")
		}
	}
}

func TestDigest_IgnoresOrderAndTests(t *testing.T) {
	a, b := File{"a.rego", "package gleaner"}, File{"b.rego", "x"}
	digest := Digest([]File{a, b})

	if Digest([]File{b, a}) != digest || Digest([]File{a, b, {"a_test.rego", "y"}}) != digest {
		t.Error("the order of files or a test changes the digest")
	}
	if plain, err := hex.DecodeString(digest); err != nil || len(plain) != sha256.Size || digest != strings.ToLower(digest) {
		t.Errorf("the digest is %q, want a SHA-256 in lower case, and nothing before it", digest)
	}
	for _, other := range [][]File{{a}, {a, {"b.rego", "y"}}, {a, {"c.rego", "x"}}, {{"a.rego", "package gleanerb.rego"}, {"", "x"}}} {
		if Digest(other) == digest {
			t.Errorf("%v has the same digest", other)
		}
	}
}

func TestHostileSources(t *testing.T) {
	nested := func(open, middle, end string, n int) string {
		return "package gleaner\ncollect := " + strings.Repeat(open, n) + middle + strings.Repeat(end, n)
	}
	for claim, c := range map[string]struct {
		files []File
		want  string
	}{
		"megabytes": {
			[]File{{"a.rego", "package gleaner\n#" + strings.Repeat("x", 4<<20)}},
			"4194321 bytes of Rego, at most 65536 are allowed: a policy contains rules, not data",
		},
		"many files": {
			make([]File, 100),
			"100 files, at most 64 are allowed",
		},
		"two files of one name": {
			[]File{{"a.rego", "package gleaner"}, {"a.rego", "package gleaner"}},
			"a.rego: duplicate file name",
		},
		"brackets nested ten thousand deep": {
			[]File{{"a.rego", nested("[", "1", "]", 10_000)}},
			"nested deeper than",
		},
		"brackets nested as deep as they fit": {
			[]File{{"a.rego", nested("[", "1", "]", 30_000)}},
			"nested deeper than",
		},
		"comprehensions nested seven deep": {
			[]File{{"a.rego", nested("[x |\nx := ", "1", "]", 7)}},
			"a.rego:8: comprehensions are nested deeper than 6: move the inner ones to rules",
		},
		"a sum of as many terms as fit": {
			[]File{{"a.rego", nested("", "1", "+1", 30_000)}},
			"nested deeper than",
		},
		"comprehensions nested a thousand deep": {
			[]File{{"a.rego", nested("[x | x := ", "1", "]", 1_000)}},
			"nested deeper than",
		},
		"template strings nested 45 deep": {
			[]File{{"a.rego", nested(`$"{`, "1", `}"`, 45)}},
			"a.rego:2: template strings are nested deeper than 3: move the inner ones to rules",
		},
		"raw template strings nested 45 deep": {
			[]File{{"a.rego", nested("$`{", "1", "}`", 45)}},
			"a.rego:2: template strings are nested deeper than 3",
		},
		"brackets in a difference, as deep as they fit": {
			[]File{{"a.rego", nested("1-(", "1", ")", 15_000)}},
			"a.rego:2: brackets are nested deeper than 100",
		},
		"brackets that are closed in comments only": {
			[]File{{"a.rego", nested("1-( # )\n", "1", ")", 5_000)}},
			"a.rego:102: brackets are nested deeper than 100",
		},
		"brackets that are closed in strings only": {
			[]File{{"a.rego", nested(`count([")", `, "1", "])", 4_000)}},
			"brackets are nested deeper than 100",
		},
		"brackets that are closed in strings of templates only": {
			[]File{{"a.rego", nested(`count([$"{")"})", `, "1", "])", 2_000)}},
			"brackets are nested deeper than 100",
		},
		"brackets that are closed behind escapes only": {
			[]File{{"a.rego", nested("count(["+`"\")", $"\{)", `+"$`\\{)`, ", "1", "])", 1_200)}},
			"brackets are nested deeper than 100",
		},
		"not, tens of thousands of times": {
			[]File{{"a.rego", "package gleaner\ncollect := 1 if " + strings.Repeat("not ", 12_000) + "x"}},
			"a.rego:2: ",
		},
		"no text at all": {[]File{{"a.rego", "\xff\xfe\x00"}}, "illegal"},
		"only tests":     {[]File{{"a_test.rego", "package gleaner"}}, "no file with rules"},
	} {
		t.Run(claim, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := compileFiles(t.Context(), c.files)
			runtime.ReadMemStats(&after)

			var refusal *Error
			if !errors.As(err, &refusal) || !strings.Contains(refusal.Message, c.want) {
				t.Errorf("got %.300v, want %q", err, c.want)
			}
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 150<<20 {
				t.Errorf("refusing it took %d MiB", taken>>20)
			}
		})
	}
}
