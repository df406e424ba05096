package archive

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/filestore"
)

var start = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)

func object(kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	o.SetName(name)
	o.SetNamespace(namespace)
	o.SetUID(types.UID("u-" + name))
	o.SetResourceVersion("7")
	return o
}

// store is a store in a folder, which no process has open.
type store struct {
	*testing.T
	folder  string
	entries []archive.Entry
}

// newStore returns a store with two ConfigMaps, one of them twice, in one namespace, an encrypted Secret in another, and a
// namespace.
func newStore(t *testing.T) (s *store, identity string) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identity = filepath.Join(t.TempDir(), "key.txt")
	if err := os.WriteFile(identity, []byte(key.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s = &store{T: t, folder: t.TempDir()}
	old := object("ConfigMap", "shop", "a")
	old.SetUID("u-older")
	secret := object("Secret", "other", "password")
	secret.Object["data"] = map[string]any{"password": "b3Blbg=="}
	cause := archive.Cause{By: archive.ByGleaner, Reason: "OwnersGone", Root: "the-root"}
	s.add(old, 0, cause)
	s.add(object("ConfigMap", "shop", "a"), 1, cause)
	s.add(object("ConfigMap", "shop", "b"), 2, archive.Cause{By: archive.ByOther})
	s.add(secret, 3, archive.Cause{}, key.Recipient())
	s.add(object("Namespace", "", "shop"), 4, archive.Cause{})
	w, err := filestore.Open(s.folder, filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Put(t.Context(), s.entries...), w.Close()); err != nil {
		t.Fatal(err)
	}
	return s, identity
}

func (s *store) add(o *unstructured.Unstructured, minutes int, cause archive.Cause, recipients ...age.Recipient) {
	s.Helper()
	h := archive.Header{Time: start.Add(time.Duration(minutes) * time.Minute), Cause: cause}
	e, err := archive.Seal(o, h, recipients)
	if err != nil {
		s.Fatal(err)
	}
	s.entries = append(s.entries, e)
}

// run runs gleaner archive with the store.
func (s *store) run(args ...string) (out string, code int) {
	s.Helper()
	cmd := Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(args, "--archive=file://"+s.folder))
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SetIn(strings.NewReader(""))
	err := cmd.ExecuteContext(s.Context())
	if err == nil {
		return b.String(), 0
	}
	status := exit.Error{Code: exit.CodeFailure}
	errors.As(err, &status)
	return b.String() + err.Error(), status.Code
}

func TestList_Selections(t *testing.T) {
	s, _ := newStore(t)
	for args, want := range map[string]string{
		"-A":                              "namespace/shop secret/password configmap/b configmap/a configmap/a",
		"-n shop":                         "configmap/b configmap/a configmap/a",
		"configmaps -n shop":              "configmap/b configmap/a configmap/a",
		"configmap/a -n shop":             "configmap/a configmap/a",
		"secrets -A":                      "secret/password",
		"namespaces -A":                   "namespace/shop",
		"--uid u-older":                   "configmap/a",
		"--cascade the-root":              "configmap/a configmap/a",
		"-A --since 2026-01-02T03:07:00Z": "namespace/shop secret/password",
		"-A --limit 1":                    "namespace/shop",
	} {
		out, code := s.run(append(strings.Fields("list "+args), "-o", "name")...)
		if got := strings.Join(strings.Fields(out), " "); got != want || code != 0 {
			t.Errorf("%s: exit code %d\n got %s\nwant %s", args, code, got, want)
		}
	}
	for _, args := range []string{"-A -n shop", "a/b/c", "--limit -1", "--since soon"} {
		if out, code := s.run(strings.Fields("list " + args)...); code != exit.CodeUsage {
			t.Errorf("%s: exit code %d: %s", args, code, out)
		}
	}
}

func TestList_Table(t *testing.T) {
	s, _ := newStore(t)
	out, code := s.run("list", "configmap/a", "-n", "shop", "--limit", "1")
	want := `NAMESPACE   OBJECT        ARCHIVED               DELETED BY   REASON       UID
shop        configmap/a   2026-01-02T03:05:00Z   Gleaner      OwnersGone   u-a
There are older entries: use --limit=0 to list all.
`
	if diff := cmp.Diff(want, out); diff != "" || code != 0 {
		t.Error(diff)
	}
	if out, _ := s.run("list", "-n", "shop", "-o", "wide"); !strings.Contains(out, s.entries[0].ID) || !strings.Contains(out, "the-root") {
		t.Errorf("wide:\n%s", out)
	}
	if out, _ := s.run("list", "-n", "nowhere"); out != "No entries found.\n" {
		t.Errorf("nothing: %q", out)
	}
}

func TestShow_PrintsTheObjectAsItWas(t *testing.T) {
	s, identity := newStore(t)
	for args, want := range map[string]string{
		"configmap/a -n shop":                             "u-a",
		"--uid u-older":                                   "u-older",
		"--id " + s.entries[0].ID:                         "u-older",
		"secret/password -n other --identity " + identity: "u-password",
	} {
		out, code := s.run(strings.Fields("show " + args)...)
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(out), &o.Object); err != nil || code != 0 || string(o.GetUID()) != want {
			t.Errorf("%s: exit code %d, %v\n%s", args, code, err, out)
		}
	}
	for args, code := range map[string]int{
		"": exit.CodeUsage, "configmap -n shop": exit.CodeUsage, "configmap/a --uid x": exit.CodeUsage, "--id x": exit.CodeUsage,
		"configmap/none -n shop": exit.CodeFailure, "secret/password -n other": exit.CodeFailure,
	} {
		if out, got := s.run(strings.Fields("show " + args)...); got != code {
			t.Errorf("%q: exit code %d\n%s", args, got, out)
		}
	}
}

func TestVerify_FindsCorruptEntries(t *testing.T) {
	s, identity := newStore(t)
	if out, code := s.run("verify"); code != 0 || !strings.Contains(out, "Verified 5 entries") || !strings.Contains(out, "Of 1, which are encrypted") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out, code := s.run("verify", "--identity", identity); code != 0 || strings.Contains(out, "encrypted") {
		t.Errorf("with the identity: exit code %d\n%s", code, out)
	}
	s.damage(s.entries[2].Body)
	out, code := s.run("verify")
	if code != exit.CodeFailure {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if !strings.Contains(out, "configmap/b") || !strings.Contains(out, "Verified 5 entries") || !strings.Contains(out, ": 1 corrupt.") {
		t.Errorf("got\n%s", out)
	}
}

// damage flips a bit of a body in the file.
func (s *store) damage(body []byte) {
	s.Helper()
	files, err := filepath.Glob(filepath.Join(s.folder, "*.db"))
	if err != nil || len(files) != 1 {
		s.Fatalf("%v %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		s.Fatal(err)
	}
	at := bytes.Index(data, body)
	if at < 0 {
		s.Fatal("the body is not in the file")
	}
	data[at+len(body)/2] ^= 1
	if err := os.WriteFile(files[0], data, 0o600); err != nil {
		s.Fatal(err)
	}
}

func TestPrune_RemovesOnlyWhatWasConfirmed(t *testing.T) {
	s, _ := newStore(t)
	left := func() string {
		out, _ := s.run("list", "-A", "-o", "name")
		return strings.Join(strings.Fields(out), " ")
	}
	const all = "namespace/shop secret/password configmap/b configmap/a configmap/a"
	for _, args := range []string{"--before 1h --dry-run", "--max-bytes 1 --dry-run --yes", "--expired --yes"} {
		if out, code := s.run(strings.Fields("prune " + args)...); code != 0 || left() != all {
			t.Errorf("%s: exit code %d, left %s\n%s", args, code, left(), out)
		}
	}
	for _, args := range []string{"--before 1h", "--uid u-older", "--max-bytes 1"} { // without an answer
		if out, code := s.run(strings.Fields("prune " + args)...); code != exit.CodeFailure || left() != all || !strings.Contains(out, "use --yes") {
			t.Errorf("%s: exit code %d, left %s\n%s", args, code, left(), out)
		}
	}
	for _, args := range []string{"", "--before 1h --expired", "--before soon", "--max-bytes x", "--expired -n shop"} {
		if out, code := s.run(strings.Fields("prune " + args)...); code != exit.CodeUsage || left() != all {
			t.Errorf("%q: exit code %d\n%s", args, code, out)
		}
	}
	for _, c := range []struct{ args, left string }{
		{"--uid u-older --yes", "namespace/shop secret/password configmap/b configmap/a"},
		{"secrets --before 1h --yes", "namespace/shop configmap/b configmap/a"},
		{"--before 2026-01-02T03:06:00Z -n shop --yes", "namespace/shop configmap/b"},
		{"--max-bytes 1 --yes", ""},
	} {
		if out, code := s.run(strings.Fields("prune " + c.args)...); code != 0 || strings.TrimPrefix(left(), "No entries found.") != c.left {
			t.Errorf("%s: exit code %d, left %q\n%s", c.args, code, left(), out)
		}
	}
}

func TestPrune_StoresThatDoNotExistAreNotCreated(t *testing.T) {
	s := &store{T: t, folder: filepath.Join(t.TempDir(), "none")}
	for _, args := range []string{"--before 1h --yes", "--max-bytes 1 --yes"} {
		if out, code := s.run(strings.Fields("prune " + args)...); code != exit.CodeFailure {
			t.Errorf("%s: exit code %d\n%s", args, code, out)
		}
	}
	if _, err := os.Stat(s.folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder exists: %v", err)
	}
}

func TestExport_WritesManifests(t *testing.T) {
	s, identity := newStore(t)
	to := filepath.Join(t.TempDir(), "backup")
	out, code := s.run("export", "-A", "--to", to)
	if code != exit.CodeFailure || !strings.Contains(out, "--identity") || !strings.Contains(out, "Exported 3 objects.") {
		t.Errorf("without the identity: exit code %d\n%s", code, out)
	}
	if out, code := s.run("export", "-n", "shop", "--to", to); code != exit.CodeFailure || !strings.Contains(out, "use --overwrite") {
		t.Errorf("files that exist: exit code %d\n%s", code, out)
	}
	if out, code := s.run("export", "-A", "--to", to, "--identity", identity, "--overwrite"); code != 0 || !strings.Contains(out, "Exported 4 objects.") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	var files []string
	for _, pattern := range []string{"*/*"} {
		found, err := filepath.Glob(filepath.Join(to, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			short, _ := filepath.Rel(to, name)
			files = append(files, short)
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: others may read it: %v %v", short, info.Mode(), err)
			}
		}
	}
	if diff := cmp.Diff([]string{"_cluster/Namespace_shop.yaml", "other/Secret_password.yaml", "shop/ConfigMap_a.yaml", "shop/ConfigMap_b.yaml"}, files); diff != "" {
		t.Error(diff)
	}
	data, err := os.ReadFile(filepath.Join(to, "shop/ConfigMap_a.yaml"))
	if diff := cmp.Diff("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: shop\n", string(data)); diff != "" || err != nil {
		t.Error(err, diff)
	}
	stream, code := s.run("export", "configmap/b", "-n", "shop", "--raw", "--to", "-")
	if code != 0 || !strings.Contains(stream, "---\napiVersion: v1\nkind: ConfigMap\n") || !strings.Contains(stream, "uid: u-b") {
		t.Errorf("exit code %d\n%s", code, stream)
	}
}

func TestFileOf_StaysBelowTheFolder(t *testing.T) {
	for _, r := range []archive.Reference{
		{Kind: "ConfigMap", Namespace: "..", Name: "x"}, {Kind: "../../x", Namespace: "shop", Name: "../y"}, {Kind: "a", Name: "/etc/passwd"}, {Kind: "a", Namespace: ".", Name: "..\\b"},
	} {
		name := fileOf(r)
		if !filepath.IsLocal(name) || strings.Count(name, "/") != 1 || strings.HasPrefix(name, ".") {
			t.Errorf("%+v: %s", r, name)
		}
	}
}

func TestCompare_ShowsWhatDiffers(t *testing.T) {
	archived, live := object("ConfigMap", "shop", "a"), object("ConfigMap", "shop", "a")
	live.SetUID("another")
	live.Object["status"] = map[string]any{"x": "y"}
	if text, err := Compare(archived, live); err != nil || text != "" {
		t.Errorf("equal, but for what the server sets: %v\n%s", err, text)
	}
	live.Object["data"] = map[string]any{"k": "v"}
	want := "--- archived\n+++ live\n@@ -1,4 +1,6 @@\n apiVersion: v1\n+data:\n+  k: v\n kind: ConfigMap\n metadata:\n   name: a\n"
	text, err := Compare(archived, live)
	if diff := cmp.Diff(want, text); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if text, err := Compare(archived, nil); err != nil || !strings.Contains(text, "-kind: ConfigMap\n") {
		t.Errorf("an object that does not exist: %v\n%s", err, text)
	}
}

func TestCompare_HidesValuesOfSecrets(t *testing.T) {
	secret := func(values map[string]any) *unstructured.Unstructured {
		o := object("Secret", "shop", "s")
		o.Object["data"] = values
		o.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "c2VjcmV0"})
		return o
	}
	archived := secret(map[string]any{"same": "c2VjcmV0", "changed": "c2VjcmV0", "gone": "c2VjcmV0", "odd": map[string]any{"a": "c2VjcmV0"}})
	for _, live := range []*unstructured.Unstructured{secret(map[string]any{"same": "c2VjcmV0", "changed": "c2VjcmV0Mg==", "new": "c2VjcmV0", "odd": []any{"c2VjcmV0"}}), nil} {
		text, err := Compare(archived, live)
		if err != nil || strings.Contains(text, "c2VjcmV0") || !strings.Contains(text, "***") {
			t.Errorf("%v\n%s", err, text)
		}
		if live != nil && (!strings.Contains(text, "-  changed: '*** (archived)'") || !strings.Contains(text, "+  changed: '*** (live)'")) {
			t.Errorf("got\n%s", text)
		}
	}
}

func TestHostileEntries_AreEscaped(t *testing.T) {
	l := printertest.Filled[list]()
	v := printertest.Filled[verification]()
	for _, format := range []string{"", "wide"} {
		var out bytes.Buffer
		if err := l.write(&out, format); err != nil {
			t.Fatal(err)
		}
		if err := v.write(&out, ""); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "evil") {
			t.Errorf("%q: the names are missing:\n%s", format, out.String())
		}
		printertest.CheckHarmless(t, format, out.String())
	}
}
