package test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"
)

// A place is a test function or a story.
type place struct {
	file string // from the root
	name string
}

// readTests returns all tests by the requirements in their
// names, and by "FOLDER TEST".
func readTests(t *testing.T) (byID map[string][]place, byName map[string]place) {
	t.Helper()
	byID, byName = map[string][]place{}, map[string]place{}
	add := func(p place, ids []string) {
		byName[path.Dir(p.file)+" "+p.name] = p
		for _, id := range ids {
			if !slices.Contains(byID[id], p) {
				byID[id] = append(byID[id], p)
			}
		}
	}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if entry.Name() != root && strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin" {
				return fs.SkipDir
			}
			return nil
		}
		file, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		file = filepath.ToSlash(file)
		switch {
		case path.Dir(file) == "test": // skip this package: it has examples of names
			return nil
		case strings.HasSuffix(file, "_test.go"):
			return readGo(name, file, add)
		case isStory.MatchString(file):
			return readStory(name, file, add)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, places := range byID {
		slices.SortFunc(places, func(x, y place) int {
			return cmp.Or(strings.Compare(x.file, y.file), strings.Compare(x.name, y.name))
		})
	}
	return byID, byName
}

// isStory matches the stories of operator/graph and operator/collector.
var isStory = regexp.MustCompile(`^operator/(graph|collector)/testdata/[^/]+$`)

// readGo finds the test functions of a file. Their requirements are in their
// names, in their doc comments, and at the beginning of the names of their cases.
func readGo(name, file string, add func(place, []string)) error {
	src, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	for _, d := range src.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !isTest.MatchString(f.Name.Name) || f.Name.Name == "TestMain" {
			continue
		}
		ids := append(inName(f.Name.Name), inHeading(f.Doc.Text())...)
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					ids = append(ids, inHeading(leading.FindString(text))...)
				}
			}
			return true
		})
		add(place{file, f.Name.Name}, ids)
	}
	return nil
}

// readStory finds the requirements in the comments of a story.
func readStory(name, file string, add func(place, []string)) error {
	src, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var headings []string
	for line := range strings.Lines(string(src)) {
		if text, ok := strings.CutPrefix(line, "# "); ok {
			headings = append(headings, strings.TrimSpace(text))
		}
	}
	add(place{file, path.Base(file)}, inHeading(strings.Join(headings, " ")))
	return nil
}

var (
	isTest = regexp.MustCompile(`^Test|^Fuzz|^Benchmark`)

	// leading matches requirements at the beginning of a case's name: "G-63, 3.16: …".
	leading = regexp.MustCompile(`^((?i:scenarios?) \d+|[GAWP]-\d\d|3\.\d{1,2}|, | and |[ ]\d+)+\b`)

	requirementID = regexp.MustCompile(`(?:^|[^\w-])([GAWP]-\d\d)\b`)
	defectID      = regexp.MustCompile(`(?:^|[^\w.-])(3\.\d{1,2})(?:\b[^.\w]|\.?$|\.\s)`)
	scenarioIDs   = regexp.MustCompile(`(?i:\bscenarios?) (\d+(?:(?:, | and |–| to )\d+)*)\b`)
	number        = regexp.MustCompile(`\d+|–| to `)
)

// inHeading returns the requirement ids in prose.
func inHeading(text string) []string {
	text = strings.ReplaceAll(text, "\n", " ")
	var ids []string
	for _, m := range requirementID.FindAllStringSubmatch(text, -1) {
		ids = append(ids, m[1])
	}
	for rest := text; ; { // one at a time, since neighbours share the space between them
		at := defectID.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		ids = append(ids, rest[at[2]:at[3]])
		rest = rest[at[3]:]
	}
	for _, m := range scenarioIDs.FindAllStringSubmatch(text, -1) {
		ids = append(ids, numbers(m[1])...)
	}
	return ids
}

// numbers parses "2, 3 and 10", and "14–17".
func numbers(text string) []string {
	var ids []string
	last, through := 0, false
	for _, word := range number.FindAllString(text, -1) {
		n, err := strconv.Atoi(word)
		if err != nil {
			through = true
			continue
		}
		for i := last + 1; through && i < n; i++ {
			ids = append(ids, strconv.Itoa(i))
		}
		ids = append(ids, strconv.Itoa(n))
		last, through = n, false
	}
	return ids
}

var (
	letterAndNumber = regexp.MustCompile(`^([GAWP])(\d\d)([A-Z]\w*)?$`)
	scenarioNumber  = regexp.MustCompile(`^Scenario(\d+)$`)
	onlyDigits      = regexp.MustCompile(`^\d+$`)
)

// inName parses TestScenario45_46_…, Test3_14_… and TestG47_G49_….
func inName(name string) []string {
	var ids []string
	words := strings.Split(isTest.ReplaceAllString(name, ""), "_")
	scenario := false
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch m := letterAndNumber.FindStringSubmatch(word); {
		case m != nil:
			ids = append(ids, m[1]+"-"+m[2])
		case scenarioNumber.MatchString(word):
			ids = append(ids, scenarioNumber.FindStringSubmatch(word)[1])
			scenario = true
		case word == "3" && i+1 < len(words) && onlyDigits.MatchString(words[i+1]):
			ids = append(ids, "3."+words[i+1])
			i++
		case onlyDigits.MatchString(word) && scenario:
			ids = append(ids, word)
		}
	}
	return ids
}

func TestNames_AreParsed(t *testing.T) {
	for name, c := range map[string]struct {
		read func(string) []string
		text string
		want []string
	}{
		"requirements":                    {inName, "TestG47_G49_Something", []string{"G-47", "G-49"}},
		"a requirement without a gap":     {inName, "TestG14TypeGone", []string{"G-14"}},
		"scenarios and a defect":          {inName, "TestScenario43_44_3_4_ASecondDelete", []string{"43", "44", "3.4"}},
		"a defect of two digits":          {inName, "Test3_14_ANewType", []string{"3.14"}},
		"nothing in other numbers":        {inName, "TestHTTP2_404_OfAProxy", nil},
		"prose":                           {inHeading, "Scenarios 2, 3 and 10, G-53 (3.4): defects 3.16, 3.17.", []string{"G-53", "3.4", "3.16", "3.17", "2", "3", "10"}},
		"a range":                         {inHeading, "Scenarios 14–17: discovery", []string{"14", "15", "16", "17"}},
		"nothing in a version":            {inHeading, "etcd 3.6.8 and v3.4", nil},
		"nothing in a UID":                {inHeading, "5f1c2f7e-1f43-4A-43d-A-01x", nil},
		"a case":                          {func(s string) []string { return inHeading(leading.FindString(s)) }, "G-63, 3.16: none are left, unlike G-01", []string{"G-63", "3.16"}},
		"nothing in the middle of a case": {func(s string) []string { return inHeading(leading.FindString(s)) }, "none, unlike 3.16", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if d := diff.Diff(c.want, c.read(c.text)); d != "" {
				t.Error(d)
			}
		})
	}
}
