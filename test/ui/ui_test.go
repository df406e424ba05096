package ui

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/completion"
)

const timeout = time.Minute

var pages = []string{
	"/", "/graph", "/graph?q=pod", "/graph?view=picture", "/graph?delete=web-0", "/graph?view=picture&delete=web-0&cascade=foreground", "/stuck", "/decisions", "/policies", "/policies?count=yes",
	"/object?kind=Pod&namespace=shop&name=pod-1", "/decisions/replay?uid=p1&time=2026-11-27T11:58:00Z", "/archive", "/archive/entry?id=a",
	"/nothing",
}

// small returns a world with every state.
func small() *world {
	w := &world{}
	w.deployments(3, 4)
	terminating(w.object("Deployment", "web-9"), "foregroundDeletion")
	terminating(w.object("Pod", "pod-9", "web-9"), "example.com/drain")
	w.object("Secret", "s", "cm-gone")
	w.fill("")
	return w
}

func TestPages_AreAccessible_InBothThemes(t *testing.T) {
	script := axe(t)
	b := window(t)
	address, _ := serve(t, small().sources(""))
	for _, scheme := range []string{"light", "dark"} {
		b.Scheme(scheme)
		for _, path := range pages {
			t.Run(scheme+path, func(t *testing.T) {
				b.TB = t
				b.Open(address + path)
				checkAccessibility(b, script)
				if path != "/nothing" { // the browser reports its status
					b.ExpectNoMessages()
				}
				b.Messages = nil
			})
		}
	}
}

func TestPages_HostileTextIsText(t *testing.T) {
	b := window(t)
	w := &world{}
	w.object("ConfigMap", "cm-"+hostile)
	w.object("Secret", "s-"+hostile, "cm-"+hostile)
	w.fill(hostile)
	address, _ := serve(t, w.sources(hostile))
	for _, path := range append(pages, "/graph?q="+strings.ReplaceAll(hostile[:20], "#", "")+"&target=%3Cscript%3E", "/?done=%3Cscript%3Ewindow.hacked%3D1%3C/script%3E", "/stuck?namespace=%22%3E%3Cscript%3E") {
		b.Open(address + path)
		var hacked bool
		b.Evaluate("'hacked' in window || document.querySelector('main script, main img') !== null", &hacked)
		if hacked {
			t.Errorf("%s runs or loads what a name has", path)
		}
		var special bool
		b.Evaluate(`/[\u202e\u200b]/.test(document.documentElement.outerHTML)`, &special)
		if special {
			t.Errorf("%s has characters that change the order of others, or are invisible", path)
		}
		if path != "/nothing" {
			b.ExpectNoMessages()
		}
		b.Messages = nil
	}
}

func TestGraph_IsSearchedWhileAPersonTypes(t *testing.T) {
	b := window(t)
	address, _ := serve(t, small().sources(""))
	b.Open(address + "/graph")
	b.Wait(".tree", "Deployment/web-0")
	b.Click("input[name=q]")
	b.Type("pod-9")
	b.Wait("[data-result] .summary", "2 objects of 22")
	b.Wait(".tree .match", "Pod/pod-9")
	b.Wait(".tree", "Deployment/web-9")
	var address2 string
	b.Evaluate("location.search", &address2)
	if !strings.Contains(address2, "q=pod-9") {
		t.Errorf("the address is %s, which does not show the same again", address2)
	}
	b.Open(address + "/graph?state=blocked")
	b.Wait("[data-result] .summary", "2 objects")
	b.ExpectNoMessages()
}

func TestGraph_IsUsedWithTheKeyboard(t *testing.T) {
	b := window(t)
	address, _ := serve(t, small().sources(""))
	b.Open(address + "/graph")
	var focused string
	b.Evaluate("[...document.querySelectorAll('.tree li a')].find(a => a.innerText === 'Deployment/web-0').focus(), document.activeElement.innerText", &focused)
	open := func() (is bool) {
		b.Evaluate("document.activeElement.closest('li').querySelector('details').open", &is)
		return is
	}
	if b.Press("ArrowLeft"); open() {
		t.Error("ArrowLeft does not close what is below")
	}
	for _, step := range []struct{ key, want string }{
		{"ArrowDown", "Deployment/web-9"}, {"ArrowUp", "Deployment/web-0"}, {"ArrowRight", "Deployment/web-0"}, {"ArrowDown", "ReplicaSet/rs-0"}, {"ArrowLeft", "ReplicaSet/rs-0"},
		{"ArrowLeft", "Deployment/web-0"},
	} {
		b.Press(step.key)
		if b.Evaluate("document.activeElement.innerText", &focused); focused != step.want {
			t.Errorf("%s leads to %q, want %q", step.key, focused, step.want)
		}
	}
	b.ExpectNoMessages()
}

func TestGraph_ShowsThePreviewOfADeletion(t *testing.T) {
	b := window(t)
	w := small()
	address, _ := serve(t, w.sources(""))
	b.Open(address + "/graph")
	b.Click(`a[aria-label="Preview the deletion of Deployment/web-0"]`)
	b.Wait(".preview", "If Deployment shop/web-0 were deleted (background)")
	b.Wait(".tree", "waits, then deleted")
	b.Click(".preview .links a")
	b.Wait(".preview", "(foreground)")
	b.Click(".tabs a:nth-child(2)")
	b.Wait("figure", "web-0")
	var boxes int
	if b.Evaluate("document.querySelectorAll('figure .box.deleted').length", &boxes); boxes == 0 {
		t.Error("the picture does not show what would be deleted")
	}
	b.ExpectNoMessages()
}

func TestGraph_Of5000Objects(t *testing.T) {
	b := window(t)
	w := &world{}
	w.deployments(500, 8)
	address, _ := serve(t, w.sources(""))
	b.Open(address + "/graph")
	b.Wait("[data-result] .summary", "5000 objects, 4997 of them folded")
	b.Open(address + "/graph?fold=no")
	b.Wait("[data-result]", "3000 more objects are not shown")
	b.Click("input[name=q]")
	b.Type("pod-499-")
	b.Wait("[data-result] .summary", "10 objects of 5000")
	b.Open(address + "/graph?fold=no&view=picture")
	b.Wait("[data-result]", "The picture would have 5000 boxes")
	b.ExpectNoMessages()
}

func TestNow_FollowsACascade_AndSaysWhenTheConnectionIsLost(t *testing.T) {
	b := window(t)
	w := small()
	address, stop := serve(t, w.sources(""))
	b.Open(address + "/")
	b.Wait("main", "Deployment/web-")
	for n := range 3 {
		w.set(func() {
			w.now.Cascades = []completion.Cascade{{Root: completion.Root{Kind: "Deployment", Namespace: "shop", Name: "web", UID: "d"}, Deleted: 100 + n}}
		})
		b.Wait("main", fmt.Sprint(100+n))
	}
	b.ExpectNoMessages()
	stop()
	b.Wait("footer", "Connection lost")
}

func TestNow_PausesAndResumes(t *testing.T) {
	b := window(t)
	w := small()
	address, _ := serve(t, w.sources(""))
	b.Open(address + "/")
	b.Click(".pause summary")
	b.Click("input[name=reason]")
	b.Type("looking at what is deleted")
	b.Click("button.danger")
	b.Wait(".notice.good", "Paused everything.")
	b.Click(`form[action="/resume"] button`)
	b.Wait(".notice.good", "Deleted the pause.")
	w.set(func() {
		if got := fmt.Sprint(w.paused); got != "[ looking at what is deleted 0s resumed shop all]" {
			t.Errorf("got %s", got)
		}
	})
	if got := fmt.Sprint(b.Messages); strings.Count(got, "dialog:") != 2 {
		t.Errorf("dialogs: %s", got)
	}
}

func TestDecisions_AreReplayedWithAnotherModule(t *testing.T) {
	b := window(t)
	address, _ := serve(t, small().sources(""))
	b.Open(address + "/decisions?object=Pod/pod-")
	b.Click(".decisions summary")
	b.Click(".decisions .links a:last-child")
	b.Wait("main", "A decision, and another module")
	var sent bool
	b.Evaluate(`(() => { const files = new DataTransfer(); files.items.add(new File(["package x"], "policy.rego"));
		document.querySelector("input[type=file]").files = files.files; document.querySelector("main form").requestSubmit(); return true })()`, &sent)
	b.Wait("pre", "p1 at 2026-11-27T11:58:00Z with policy.rego: package x")
	b.ExpectNoMessages()
}

func TestArchive_IsComparedAndRestored(t *testing.T) {
	b := window(t)
	w := small()
	address, _ := serve(t, w.sources(""))
	b.Open(address + "/archive")
	b.Click("main td a")
	b.Wait("main", "Compared with nothing")
	b.Click("button[name=dry-run]")
	b.Wait("pre", "Restored 1 object.")
	b.Click("button.danger")
	b.Wait("pre", "Restored 1 object.")
	devtest.Eventually(t, timeout, func() (err error) {
		w.set(func() {
			if got := fmt.Sprint(w.paused); got != "[restored s1 true restored s1 false]" {
				err = errors.New(got)
			}
		})
		return err
	})
	if got := fmt.Sprint(b.Messages); strings.Count(got, "dialog:") != 1 {
		t.Errorf("dialogs: %s", got)
	}
}

func TestPages_SayWhatAUserMayNotRead(t *testing.T) {
	b := window(t)
	w := small()
	w.denied = errors.New(`pods is forbidden: User "jane" cannot list resource "pods"`)
	address, _ := serve(t, w.sources(""))
	for _, path := range []string{"/", "/graph", "/stuck", "/decisions", "/policies", "/object?kind=Pod&name=p", "/archive", "/archive/entry?id=a"} {
		b.Open(address + path)
		b.Wait(".notice.bad", "cannot list resource")
	}
	b.Open(address + "/")
	b.Click(".pause summary")
	b.Click("input[name=reason]")
	b.Type("x")
	b.Click("button.danger")
	b.Wait("main", "The operation failed or is incomplete")
}

func TestPages_AreReadableWithoutScripts(t *testing.T) {
	b := window(t)
	address, _ := serve(t, small().sources(""))
	b.Scripts(false)
	defer b.Scripts(true)
	for path, want := range map[string]string{
		"/": "Cascades in progress", "/graph": "Deployment/web-0", "/stuck": "example.com/drain", "/decisions": "OwnersAbsent", "/policies": "ModuleReady", "/policies?count=yes": ": at most 12 objects, before its conditions",
		"/object?kind=Pod&name=p": "It is being deleted",
	} {
		b.Open(address + path)
		b.Wait("main", want)
	}
	b.Open(address + "/graph")
	b.Click("input[name=q]")
	b.Type("pod-9")
	b.Press("Enter")
	b.Wait("[data-result] .summary", "2 objects of 22")
}
