package preview

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/internal/cli/cascade"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/retention"
)

var elapsed = regexp.MustCompile(`after \d+s`)

// gleaner runs gleaner delete, gleaner wait or gleaner preview retention, with an answer to its question.
func (w *env) gleaner(ctx context.Context, answer string, args ...string) (out string, code int) {
	w.Helper()
	return w.gleanerWith(ctx, strings.NewReader(answer), args...)
}

func (w *env) gleanerWith(ctx context.Context, in io.Reader, args ...string) (out string, code int) {
	w.Helper()
	var b bytes.Buffer
	code = w.gleanerTo(ctx, in, &b, args...)
	return elapsed.ReplaceAllString(b.String(), "after Ns"), code
}

func (w *env) gleanerTo(ctx context.Context, in io.Reader, out io.Writer, args ...string) (code int) {
	w.Helper()
	cmd := map[string]func() *cobra.Command{"delete": cascade.DeleteCommand, "wait": cascade.WaitCommand, "retention": retention.Command}[args[0]]()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"--kubeconfig=" + devtest.Shared(w.T).Kubeconfig(), "-n", w.ns}, args[1:]...))
	cmd.SetOut(out)
	cmd.SetErr(out)
	cmd.SetIn(in)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	status := exit.Error{Code: exit.CodeFailure}
	errors.As(err, &status)
	if _, err := fmt.Fprintf(out, "error: %v\n", err); err != nil {
		w.Error(err)
	}
	return status.Code
}

// expect runs a command, and checks its exit code, and the end of what it prints.
func (w *env) expect(code int, end, answer string, args ...string) (out string) {
	w.Helper()
	out, got := w.gleaner(w.Context(), answer, args...)
	if got != code || !strings.HasSuffix(out, end) {
		w.Fatalf("gleaner %s: exit code %d, want %d, and at the end %q:\n%s", strings.Join(args, " "), got, code, end, out)
	}
	return out
}

func (w *env) expectGone(names ...string) {
	w.Helper()
	for _, name := range names {
		if live := w.get(name); live != nil {
			w.Errorf("%s exists when the command has ended: %v", name, live.Object["metadata"])
		}
	}
}

func TestDelete_EndsWhenNothingIsLeft(t *testing.T) {
	for claim, s := range map[string]struct {
		policies, objects string
		args              []string
		end               string
		gone              []string
	}{
		"no propagation policy": {
			objects: "ConfigMap top\n Secret a owners=top\n ConfigMap b owners=a",
			args:    []string{"configmap/top"},
			end:     "Done after Ns: 3 of 3 objects gone.\n", gone: []string{"top", "a", "b"}},
		"foreground": {
			objects: "ConfigMap top\n Secret a owners=top!\n ConfigMap b owners=a!",
			args:    []string{"configmap/top", "--cascade=foreground"},
			end:     "Done after Ns: 3 of 3 objects gone.\n", gone: []string{"top", "a", "b"}},
		"orphan": {
			objects: "ConfigMap top\n Secret a owners=top\n ConfigMap b owners=a",
			args:    []string{"cm", "top", "--cascade=orphan"},
			end:     "Done after Ns: 1 of 3 objects gone, 2 kept.\n  kept: Secret/a\n  kept: ConfigMap/b\n", gone: []string{"top"}},
		"another owner keeps one": {
			objects: "ConfigMap top\n ConfigMap other\n Secret a owners=top,other\n ConfigMap b owners=top",
			args:    []string{"configmap/top", "--preview=false"},
			end:     "Done after Ns: 2 of 3 objects gone, 1 kept.\n  kept: Secret/a\n", gone: []string{"top", "b"}},
		"several objects": {
			objects: "ConfigMap top\n ConfigMap other\n Secret a owners=top,other",
			args:    []string{"configmap", "top", "other"},
			end:     "Done after Ns: 3 of 3 objects gone.\n", gone: []string{"top", "other", "a"}},
		"a policy keeps one": {
			policies: policy + `{collect: {decision: Orphan}}`,
			objects:  "ConfigMap top\n Secret a owners=top\n ConfigMap b owners=a",
			args:     []string{"configmap/top"},
			end:      "Done after Ns: 1 of 3 objects gone, 2 kept.\n  kept: Secret/a\n  kept: ConfigMap/b\n", gone: []string{"top"}},
		"a policy decides about the dependents": {
			policies: policy + `{propagate: {decision: Orphan}}`,
			objects:  "Secret top held\n ConfigMap a owners=top",
			args:     []string{"secret/top"},
			end:      "Done after Ns: 1 of 2 objects gone, 1 kept.\n  kept: ConfigMap/a\n", gone: []string{"top"}},
		"without waiting": {
			objects: "ConfigMap top finalizers=test.example.com/x",
			args:    []string{"configmap/top", "--wait=false"},
			end:     "configmaps \"top\": deletion requested\n"},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newEnv(t)
			w.applyPolicies(s.policies)
			w.create(s.objects)
			out := w.expect(0, s.end, "", append([]string{"delete"}, s.args...)...)
			w.expectGone(s.gone...)
			if preview := strings.Contains(out, "OUTCOME"); preview == strings.Contains(strings.Join(s.args, " "), "--preview=false") {
				t.Errorf("a preview is shown: %t\n%s", preview, out)
			}
		})
	}
}

func TestDelete_OfANamespace_EndsWhenItsContentIsGone(t *testing.T) {
	w := newEnv(t)
	w.create("ConfigMap a\n Secret b owners=a")
	out := w.expect(0, " gone.\n", "y\n", "delete", "namespace/"+w.ns, "--confirm-over=0")
	w.expectGone("a", "b")
	if !strings.Contains(out, "Delete namespace/"+w.ns+"? Up to ") {
		t.Errorf("no question:\n%s", out)
	}
}

func TestDelete_AsksForConfirmation(t *testing.T) {
	const objects = "ConfigMap top\n Secret a owners=top\n ConfigMap b owners=a"
	for claim, s := range map[string]struct {
		args   []string
		answer string
		asks   bool
		code   int
	}{
		"fewer objects":    {args: []string{"--confirm-over=3"}},
		"more, and no":     {args: []string{"--confirm-over=2"}, answer: "n\n", asks: true, code: 3},
		"more, and silent": {args: []string{"--confirm-over=2"}, asks: true, code: 3},
		"more, and yes":    {args: []string{"--confirm-over=2"}, answer: "yes\n", asks: true},
		"with --yes":       {args: []string{"--confirm-over=0", "--yes"}},
		"not previewed":    {args: []string{"--confirm-over=2", "--preview=false"}, asks: true, code: 3},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newEnv(t)
			w.create(objects)
			out, code := w.gleaner(t.Context(), s.answer, append([]string{"delete", "configmap/top"}, s.args...)...)
			if asks := strings.Contains(out, "Delete configmap/top? Up to 3 objects will be deleted. [y/N]"); asks != s.asks || code != s.code {
				t.Errorf("asks: %t, exit code %d, want %t and %d:\n%s", asks, code, s.asks, s.code, out)
			}
			if live := w.get("top"); (live != nil && live.GetDeletionTimestamp() == nil) != (s.code == 3) {
				t.Errorf("the object is %v", live)
			}
		})
	}
}

func TestWait_FollowsACascadeInProgress(t *testing.T) {
	w := newEnv(t)
	w.create(`
		ConfigMap top finalizers=test.example.com/x
		Secret a owners=top finalizers=test.example.com/x
		ConfigMap b owners=a`)
	w.expect(1, `error: configmaps "top" is not being deleted; to delete it, run gleaner delete configmap/top`+"\n", "", "wait", "configmap/top")
	w.expect(4, "error: timed out after Ns: 0 of 3 objects gone, 3 left: ConfigMap/top waits for finalizer test.example.com/x; to find out why an object is left, run gleaner explain KIND/NAME\n", "",
		"delete", "configmap/top", "--timeout=1s")
	w.expect(4, "ConfigMap/top waits for finalizer test.example.com/x; to find out why an object is left, run gleaner explain KIND/NAME\n", "", "wait", "configmap/top", "--timeout=1s")

	w.removeFinalizers("top") // then it is found by those that refer to it
	w.eventuallyGone("top")
	w.expect(4, "error: timed out after Ns: 1 of 3 objects gone, 2 left: Secret/a waits for finalizer test.example.com/x; to find out why an object is left, run gleaner explain KIND/NAME\n", "",
		"wait", "configmap/top", "--timeout=3s")

	ended := make(chan string, 1)
	go func() {
		out, code := w.gleaner(t.Context(), "", "wait", "configmap/top")
		ended <- fmt.Sprintf("%s exit code %d", out, code)
	}()
	w.removeFinalizers("a")
	if out := <-ended; !strings.HasSuffix(out, " gone.\n exit code 0") && !strings.HasSuffix(out, "its owner.\n exit code 0") {
		t.Error(out)
	}
	w.eventuallyGone("a", "b")
	w.expect(0, "configmap/top: gone, and no object has it as its owner.\n", "", "wait", "configmap/top")
}

func (w *env) eventuallyGone(names ...string) {
	w.Helper()
	for _, name := range names {
		devtest.Eventually(w, timeout, func() error {
			if w.get(name) != nil {
				return fmt.Errorf("%s still exists", name)
			}
			return nil
		})
	}
}

func TestDelete_Interrupted_SaysHowToFollow(t *testing.T) {
	w := newEnv(t)
	w.create("ConfigMap top finalizers=test.example.com/x")
	ctx, cancel := context.WithCancel(t.Context())
	out := &reacting{to: map[string]func(){"waits for": cancel}}
	code := w.gleanerTo(ctx, strings.NewReader(""), out, "delete", "configmap/top")
	if want := "error: interrupted: 0 of 1 object gone, 1 left; the deletion continues; to follow it again, run gleaner wait configmap/top -n " + w.ns + "\n"; code != 1 || !strings.HasSuffix(out.String(), want) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// A dependent is created during the deletion, of a type that nothing else of it has.
func TestDelete_FollowsWhatIsCreatedMeanwhile(t *testing.T) {
	w := newEnv(t)
	w.create("ConfigMap top finalizers=test.example.com/x")
	out := &reacting{to: map[string]func(){
		"ConfigMap/top waits for finalizer": func() {
			w.create("Secret late owners=top finalizers=test.example.com/x")
			w.removeFinalizers("top")
		},
		"1 of 2 objects gone, 1 left: Secret/late waits for finalizer": func() { w.removeFinalizers("late") },
	}}
	code := w.gleanerTo(t.Context(), strings.NewReader(""), out, "delete", "configmap/top")
	if code != 0 || len(out.to) != 0 || !strings.HasSuffix(out.String(), ": 2 of 2 objects gone.\n") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	w.expectGone("top", "late")
}

// reacting is the output of a command, to which something is done once.
type reacting struct {
	bytes.Buffer
	to map[string]func()
}

// Write implements io.Writer.
func (r *reacting) Write(data []byte) (int, error) {
	for text, do := range r.to {
		if bytes.Contains(data, []byte(text)) {
			delete(r.to, text)
			do()
		}
	}
	return r.Buffer.Write(data)
}

// What can't be read is not gone.
func TestDelete_WithoutPermissionToList(t *testing.T) {
	w := newEnv(t)
	w.create("ConfigMap top\n Secret a owners=top")
	user := "limited-" + w.ns
	for resource, text := range map[string]string{
		"roles": `{"metadata": {"name": "limited"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "delete"]}]}`,
		"rolebindings": `{"metadata": {"name": "limited"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "limited"},
			"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "` + user + `"}]}`,
	} {
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetAPIVersion("rbac.authorization.k8s.io/v1")
		o.SetKind(map[string]string{"roles": "Role", "rolebindings": "RoleBinding"}[resource])
		gvr := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
		if _, err := w.objects.Resource(gvr).Namespace(w.ns).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"delete", "configmap/top", "--preview=false", "--as=" + user}
	w.expect(1, "you may not list and watch its type; run the command again, or use --wait=false\n", "y\n", args...)
	w.expectTopExists()
	args = append(args, "--wait=false")
	w.expect(3, "", "", args...) // it asks, since types can't be read
	w.expectTopExists()
	out := w.expect(0, "deletion requested\n", "y\n", args...)
	if !strings.Contains(out, "Not all types can be read, so 1 object or more will be deleted. [y/N]") {
		t.Error(out)
	}
	w.eventuallyGone("top", "a")
	w.expect(0, "", "", "wait", "configmap/top")
	if out := w.expect(0, "", "", "wait", "configmap/top", "--as="+user); !strings.Contains(out, "Not checked, because it can't be read:") {
		t.Error(out)
	}
}

func TestDelete_DeletesOnlyWhatWasPreviewed(t *testing.T) {
	w := newEnv(t)
	out := w.expect(1, "", "", "delete", "configmap/top")
	if !strings.Contains(out, `configmaps "top" not found`) {
		t.Error(out)
	}
	w.create("ConfigMap top")
	recreates := &recreating{env: w, Reader: strings.NewReader("y\n")}
	out, code := w.gleanerWith(t.Context(), recreates, "delete", "configmap/top", "--confirm-over=0")
	if code != 1 || !strings.Contains(out, "was deleted and created again after it was read: run the command again") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	w.expectTopExists()
}

// If one of several deletions fails, the others are followed.
func TestDelete_FollowsTheOthersIfOneFails(t *testing.T) {
	w := newEnv(t)
	w.create("ConfigMap top\n ConfigMap other\n Secret a owners=other")
	recreates := &recreating{env: w, Reader: strings.NewReader("y\n")}
	out, code := w.gleanerWith(t.Context(), recreates, "delete", "configmap", "top", "other", "--confirm-over=0")
	for _, want := range []string{"Following the others.\n", "Done after Ns: 2 of 2 objects gone.\n", `configmaps "top" was deleted and created again`} {
		if !strings.Contains(out, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if code != 1 || t.Failed() {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	w.expectTopExists()
	w.expectGone("other", "a")
}

// recreating is the answer of someone who recreates the object before it.
type recreating struct {
	*env
	io.Reader
	once sync.Once
}

// Read implements io.Reader.
func (r *recreating) Read(to []byte) (int, error) {
	r.once.Do(func() {
		if err := r.client("ConfigMap").Delete(r.Context(), "top", metav1.DeleteOptions{}); err != nil {
			r.Error(err)
		}
		r.eventuallyGone("top")
		r.create("ConfigMap top")
	})
	return r.Reader.Read(to)
}

func (w *env) expectTopExists() {
	w.Helper()
	if live := w.get("top"); live == nil || live.GetDeletionTimestamp() != nil {
		w.Errorf("it was deleted: %v", live)
	}
}
