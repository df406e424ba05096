package archive

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/operator/archive/serve"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// expectNoSecret checks that an archived Secret can't be read with what the operator has and serves.
func expectNoSecret(t *testing.T, b *testbed, g *operator, location, namespace string) {
	t.Helper()
	entries, err := filepath.Glob(filepath.Join(strings.TrimPrefix(location, "file://"), "*"))
	if err != nil || len(entries) == 0 {
		t.Fatal(entries, err)
	}
	for _, name := range entries {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		checkNoSecret(t, name, data)
	}
	for _, path := range []string{"/metrics", "/debug/gc/status", "/debug/gc/synced", "/debug/gc/graph?format=json", "/debug/gc/graph", "/debug/gc/records", serve.HeadersPath} {
		checkNoSecret(t, path, g.get(path))
	}
	var page serve.Page
	if err := json.Unmarshal(g.get(serve.HeadersPath+"?kind=Secret&name=password&namespace="+namespace), &page); err != nil || len(page.Items) != 1 {
		t.Fatal(page, err)
	}
	h := page.Items[0]
	body := g.get(serve.BodyPath + "?" + serve.EntryValues(h).Encode())
	checkNoSecret(t, "the body", body)
	if h.Recipients != 1 || !bytes.HasPrefix(body, []byte("age-encryption.org/v1\n")) {
		t.Errorf("it is not encrypted: %+v", h)
	}
	checkNoSecret(t, "the operator's log", []byte(g.Log.String()))
	out, code := b.run(t, "archive", "show", "secret/password", "-n", namespace, "--endpoint="+g.endpoint)
	if code != 1 || !strings.Contains(out, "it is encrypted to 1 recipient: pass --identity FILE") {
		t.Errorf("show without an identity: exit code %d\n%s", code, out)
	}
	_, other, _ := newIdentity(t)
	out, code = b.run(t, "archive", "show", "secret/password", "-n", namespace, "--endpoint="+g.endpoint, "--identity="+other)
	if code != 1 || !strings.Contains(out, "cannot decrypt it") {
		t.Errorf("show with another identity: exit code %d\n%s", code, out)
	}
}

func checkNoSecret(t *testing.T, where string, data []byte) {
	t.Helper()
	for _, text := range []string{password, base64.StdEncoding.EncodeToString([]byte(password))} {
		if bytes.Contains(data, []byte(text)) {
			t.Errorf("%s has the value of the Secret", where)
		}
	}
}

// get reads what the operator serves.
func (g *operator) get(path string) []byte {
	g.Helper()
	response, err := http.Get(g.endpoint + path)
	if err != nil {
		g.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		g.Fatal(path, response.Status, err, string(data))
	}
	return data
}
