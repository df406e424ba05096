package restore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	uicli "github.com/gleaner-dev/gleaner/internal/cli/ui"
	"github.com/gleaner-dev/gleaner/operator/archive"
)

// printed is an output that another goroutine writes.
type printed struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (p *printed) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(data)
}

func (p *printed) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.String()
}

// startUI runs gleaner ui until the test ends, and returns a browser of it, and its address.
func (e *env) startUI(args ...string) (*http.Client, string) {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Context())
	cmd, out := uicli.Command(), &printed{}
	cmd.SetArgs(append([]string{"--kubeconfig=" + e.cluster.Kubeconfig(), "--endpoint=" + e.endpoint, "-n", e.Namespace, "--open=false"}, args...))
	cmd.SetOut(out)
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	e.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			e.Error(err)
		}
	})
	var address string
	devtest.Eventually(e, timeout, func() error {
		if address = regexp.MustCompile(`http://\S+`).FindString(out.text()); address == "" {
			return fmt.Errorf("no address: %s", out.text())
		}
		return nil
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		e.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	e.page(browser.Get(address))
	base, _, _ := strings.Cut(address, "/open")
	return browser, base
}

// page returns the text of a page.
func (e *env) page(r *http.Response, err error) string {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		e.Fatalf("%s: %v\n%s", r.Status, err, text)
	}
	return string(text)
}

func TestUI_ShowsAndRestoresWhatIsArchived(t *testing.T) {
	e := newEnv(t)
	archived := e.store(archive.Cause{Reason: "OwnersAbsent"}, e.Tree()...)
	e.Remove(archived[:1], archived...)
	browser, base := e.startUI()

	list := e.page(browser.Get(base + "/archive?kind=root&namespace=" + e.Namespace))
	entry := regexp.MustCompile(`href="(/archive/entry\?id=([^"]+))"`).FindStringSubmatch(list)
	if entry == nil || !strings.Contains(list, "1 archived object") {
		t.Fatalf("the archive is\n%s", list)
	}
	shown := e.page(browser.Get(base + entry[1]))
	if !strings.Contains(shown, "there is no object of its name") || !strings.Contains(shown, "-kind: Root") || !strings.Contains(shown, "gleaner restore --uid "+string(archived[0].GetUID())) {
		t.Errorf("the entry is\n%s", shown)
	}
	form := url.Values{"id": {entry[2]}, "dry-run": {"yes"}}
	if tried := e.page(browser.PostForm(base+"/archive/restore", form)); !strings.Contains(tried, "Root.restore.example.com/root") || e.Read(archived[0]) != nil {
		t.Errorf("trying it:\n%s", tried)
	}
	form.Del("dry-run")
	if restored := e.page(browser.PostForm(base+"/archive/restore", form)); !strings.Contains(restored, "Restored 6 objects") || !strings.Contains(restored, "They are equal") {
		t.Errorf("restoring it:\n%s", restored)
	}
	e.Compare(archived)
}

func TestUI_ShowsNoValuesOfArchivedSecrets(t *testing.T) {
	e := newEnv(t)
	password := e.Create(secret)
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	e.storeFor([]age.Recipient{key.Recipient()}, archive.Cause{}, password)
	file := filepath.Join(t.TempDir(), "key.txt")
	if err := os.WriteFile(file, []byte(key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	browser, base := e.startUI("--identity", file)
	entry := regexp.MustCompile(`href="(/archive/entry\?id=[^"]+)"`).FindStringSubmatch(e.page(browser.Get(base + "/archive")))
	if entry == nil {
		t.Fatal("the Secret is not listed")
	}
	for _, live := range []bool{true, false} {
		if !live {
			e.Remove([]*unstructured.Unstructured{password}, password)
		}
		shown := e.page(browser.Get(base + entry[1]))
		if strings.Contains(shown, "b3BlbiBzZXNhbWU") || strings.Contains(shown, "sesame") {
			t.Errorf("live: %t:\n%s", live, shown)
		}
		if !strings.Contains(shown, "Compared with") {
			t.Errorf("nothing is compared:\n%s", shown)
		}
	}
}
