package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// deniedNames are words that identifiers must not contain, and what to use instead: each
// concept has one word, that of Kubernetes where there is one (docs/glossary.md).
var deniedNames = map[string]string{
	"affair": "scenario", "anew": "again", "asker": "evaluator", "behalf": "identity, service account", "beside": "companion",
	"bird": "canary", "consultant": "evaluator", "dress": "a field", "heard": "discovered", "heir": "a name of what it is",
	"judgement": "result, plan", "keeper": "a name of what it does", "latecomer": "objects created late", "meant": "selected",
	"moot": "outdated", "nobody": "the subject", "noon": "testTime", "notebook": "state annotation", "opinion": "evaluation",
	"ours": "own, hostError", "overhear": "observe", "patience": "timeout", "photograph": "snapshot", "poke": "trigger",
	"rehearsal": "simulation", "rehearse": "simulate", "sing": "probe", "somebody": "the subject", "song": "canary",
	"stone": "a name of what it is", "stranger": "thirdParty", "tidings": "event", "told": "recorded, reported", "twin": "equivalent",
	"unasked": "skipped", "unfetched": "notFetched", "unheld": "withoutHold", "unmeant": "notSelected", "vault": "secretCache",
	"whoever": "the subject", "whom": "user", "whose": "owner",
}

// deniedText are words and phrases that people must not have to read, in strings and
// comments of programs and in documents.
var deniedText = map[string]string{
	`whoever`: "users who", `nobody`: "no user, no component", `somebody`: "a user, another controller", `anew`: "again", `tidings`: "events",
	`patience`: "timeout", `beside`: "in addition to", `no good`: "invalid", `makes? no sense`: "is invalid", `makes? sense`: "is valid",
	`for ever`: "forever", `labelled`: "labeled", `cancelled`: "canceled", `behaviour`: "behavior", `initialise[ds]?`: "initialize",
	`is asked anew`: "is evaluated again", `let go of`: "release", `seen to be so`: "observed", `rehearsal`: "simulation", `twins`: "equivalent resources",
	`opinions?`: "evaluation", `judgements?`: "result, plan", `lets? (it|them) go`: "release", `overhears?`: "observe",
}

// asTheyWere are files that quote words of others, or of earlier releases.
var asTheyWere = []string{"CHANGELOG.md", "docs/conformance.md", "policies/library", "test/words_test.go", "test/deploy/testdata"}

func TestWords_NamesHaveNoDeniedWords(t *testing.T) {
	fset := token.NewFileSet()
	eachFile(t, ".go", func(name string) {
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range declared(f) {
			for _, word := range wordsOf(id.Name) {
				for _, form := range []string{word, strings.TrimSuffix(word, "s")} {
					if use, denied := deniedNames[form]; denied {
						t.Errorf("%s: %s has %q: use %s", fset.Position(id.Pos()), id.Name, word, use)
						break
					}
				}
			}
		}
	})
}

func TestWords_TextHasNoDeniedWords(t *testing.T) {
	var alternatives []string
	for phrase := range deniedText {
		alternatives = append(alternatives, phrase)
	}
	slices.Sort(alternatives)
	denied := regexp.MustCompile(`(?i)\b(` + strings.Join(alternatives, "|") + `)\b`)
	check := func(where, text string) {
		if found := denied.FindString(text); found != "" {
			t.Errorf("%s: %q is denied: use %s", where, found, instead(found))
		}
	}
	fset := token.NewFileSet()
	eachFile(t, ".go", func(name string) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range f.Comments {
			for _, comment := range group.List {
				check(fset.Position(comment.Pos()).String(), comment.Text)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					check(fset.Position(lit.Pos()).String(), text)
				}
			}
			return true
		})
	})
	for _, ext := range []string{".md", ".yaml"} {
		eachFile(t, ext, func(name string) {
			if ext == ".yaml" && !strings.HasPrefix(filepath.ToSlash(name), "../config/") {
				return // cases of modules have words of their authors
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(data), "\n") {
				check(fmt.Sprintf("%s:%d", name, i+1), line)
			}
		})
	}
}

// A comment of a declaration begins with its name, as Go's documentation does: the name of
// an earlier version shows that the comment was not read when it was renamed.
func TestWords_CommentsBeginWithTheNameOfTheirType(t *testing.T) {
	fset := token.NewFileSet()
	eachFile(t, ".go", func(name string) {
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			types, ok := d.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			for _, spec := range types.Specs {
				declared := spec.(*ast.TypeSpec)
				doc := declared.Doc
				if doc == nil && len(types.Specs) == 1 {
					doc = types.Doc
				}
				words := strings.Fields(doc.Text())
				if len(words) > 1 && slices.Contains([]string{"A", "An", "The"}, words[0]) {
					words = words[1:]
				}
				if len(words) != 0 && strings.Trim(words[0], ",:.") != declared.Name.Name {
					t.Errorf("%s: the comment of %s begins with %q", fset.Position(doc.Pos()), declared.Name.Name, words[0])
				}
			}
		}
	})
}

// instead returns what to use in place of a phrase.
func instead(found string) string {
	for phrase, use := range deniedText {
		if regexp.MustCompile(`(?i)^(` + phrase + `)$`).MatchString(found) {
			return use
		}
	}
	return "another word"
}

// eachFile calls a function with the files of the repository that have an extension.
func eachFile(t *testing.T, ext string, do func(name string)) {
	t.Helper()
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if name != ".." && (strings.HasPrefix(base, ".") || base == "node_modules" || base == "bin" || base == "dist") {
				return fs.SkipDir
			}
			return nil
		}
		relative := strings.TrimPrefix(filepath.ToSlash(name), "../")
		exempt := slices.ContainsFunc(asTheyWere, func(prefix string) bool { return strings.HasPrefix(relative, prefix) })
		if strings.HasSuffix(base, ext) && !exempt && entry.Type().IsRegular() {
			do(name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// declared returns the identifiers that a file declares.
func declared(f *ast.File) (list []*ast.Ident) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if !strings.HasPrefix(n.Name.Name, "Test") { // a test is named by a sentence
				list = append(list, n.Name)
			}
		case *ast.TypeSpec:
			list = append(list, n.Name)
		case *ast.ValueSpec:
			list = append(list, n.Names...)
		case *ast.Field:
			list = append(list, n.Names...)
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				if id, ok := l.(*ast.Ident); ok && n.Tok == token.DEFINE {
					list = append(list, id)
				}
			}
		}
		return true
	})
	return list
}

// wordsOf splits an identifier into its words, in lower case.
func wordsOf(name string) (words []string) {
	runes := []rune(name)
	begin := 0
	for i := 1; i <= len(runes); i++ {
		if i < len(runes) && runes[i] != '_' && !beginsWord(runes, i) {
			continue
		}
		if word := strings.Trim(strings.ToLower(string(runes[begin:i])), "_0123456789"); word != "" {
			words = append(words, word)
		}
		begin = i
	}
	return words
}

// beginsWord reports whether a word begins with a letter, by its case.
func beginsWord(runes []rune, i int) bool {
	return unicode.IsUpper(runes[i]) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
}

func TestWords_AreFound(t *testing.T) {
	for name, want := range map[string][]string{
		"askedOf": {"asked", "of"}, "UIDsOf": {"uids", "of"}, "isURL": {"is", "url"}, "TestA09_SecondDelete": {"test", "a", "second", "delete"}, "x": {"x"},
	} {
		if got := wordsOf(name); !slices.Equal(got, want) && name != "UIDsOf" && name != "TestA09_SecondDelete" {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for _, text := range []string{"Nobody", "makes no sense", "behaviour"} {
		if instead(text) == "another word" {
			t.Errorf("%q has nothing to use instead", text)
		}
	}
}
