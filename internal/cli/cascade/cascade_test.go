package cascade

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
	"github.com/gleaner-dev/gleaner/operator/cascade"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

func TestParseNames(t *testing.T) {
	for text, want := range map[string]string{
		"deploy/web":                         "[deploy/web]",
		"deploy web":                         "[deploy/web]",
		"deploy web api":                     "[deploy/web deploy/api]",
		"deployments.apps/web cm/a":          "[deployments.apps/web cm/a]",
		"":                                   "an object is required: write KIND/NAME or KIND NAME, such as deployment/web",
		"deploy":                             `invalid object "deploy": write KIND/NAME or KIND NAME, such as deployment/web, deploy web or deployments.apps/web`,
		"deploy/":                            `invalid object "deploy/": write KIND/NAME or KIND NAME, such as deployment/web, deploy web or deployments.apps/web`,
		"deploy/web api":                     `invalid object "api": write KIND/NAME or KIND NAME, such as deployment/web, deploy web or deployments.apps/web`,
		"deploy web cm/a":                    `"cm/a" after "deploy": write KIND/NAME for each object, or KIND NAME NAME`,
		"deploy,cm web":                      `invalid object "deploy,cm/web": write KIND/NAME or KIND NAME, such as deployment/web, deploy web or deployments.apps/web`,
		"deploy/web/more":                    `invalid object "deploy/web/more": write KIND/NAME or KIND NAME, such as deployment/web, deploy web or deployments.apps/web`,
		"deployment/web cm/a deployment/web": "deployment/web is named twice",
	} {
		names, err := parseNames(strings.Fields(text))
		got := fmt.Sprint(names)
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestValidate(t *testing.T) {
	for args, want := range map[string]string{
		"delete cm/a --cascade=deep":            "--cascade=deep: use background, foreground or orphan, or omit it",
		"delete cm/a --confirm-over=-1":         "--confirm-over=-1: use 0 or more",
		"delete cm/a --timeout=-1s":             "--timeout=-1s: use a positive duration, such as 5m, or omit it",
		"delete cm/a --timeout=1s --wait=false": "--timeout and --wait=false can't be used together: nothing is waited for",
		"wait cm/a --for=condition=Ready":       "--for=condition=Ready: use cascade; for conditions, use kubectl wait",
		"wait cm/a --timeout=-1s":               "--timeout=-1s: use a positive duration, such as 5m, or omit it",
	} {
		cmd := DeleteCommand()
		if strings.HasPrefix(args, "wait") {
			cmd = WaitCommand()
		}
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(strings.Fields(args)[1:])
		if err := cmd.ExecuteContext(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func object(kind, name string) graph.Object {
	return graph.Object{Kind: schema.GroupVersionKind{Version: "v1", Kind: kind}, Name: name}
}

// sample is a status with something of everything.
func sample() cascade.Status {
	terminating := object("Pod", "ending")
	terminating.Terminating = true
	return cascade.Status{Gone: 4, Kept: []graph.Object{object("PersistentVolumeClaim", "data")}, Left: []cascade.Left{
		{Object: object("Deployment", "web"), Waiting: cascade.Waiting{For: cascade.Dependents, Object: object("ReplicaSet", "web-1"), Others: 2}},
		{Object: object("ReplicaSet", "web-1"), Depth: 1, Waiting: cascade.Waiting{For: cascade.OwnerLeft, Object: object("Deployment", "web")}},
		{Object: terminating, Depth: 2},
		{Object: object("Secret", "a"), Depth: 1, Waiting: cascade.Waiting{For: cascade.Finalizers, Finalizers: []string{"example.com/a", "example.com/b"}}},
		{Object: object("Secret", "b"), Depth: 1, Waiting: cascade.Waiting{For: cascade.OwnerGone, Object: object("ConfigMap", "c")}},
		{Object: object("Secret", "d"), Waiting: cascade.Waiting{For: cascade.Policy}},
		{Object: object("Secret", "e"), Waiting: cascade.Waiting{For: cascade.Orphaning}},
	}}
}

func TestPlainLine_NamesWhatTheRestWaitsFor(t *testing.T) {
	const want = "4 of 12 objects gone, 1 kept, 7 left: Pod/ending waits for its containers to end; Secret/a waits for finalizers example.com/a, example.com/b; " +
		"Secret/b waits for the garbage collector, because its owner ConfigMap/c is gone; 2 more"
	if diff := cmp.Diff(want, plainLine(sample())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLiveLines_ShowTheTreeAndABar(t *testing.T) {
	want := []string{
		"Deployment/web waits for ReplicaSet/web-1 and 2 more",
		"├─ReplicaSet/web-1 waits for its owner Deployment/web",
		"│ └─Pod/ending waits for its containers to end",
		"├─Secret/a waits for finalizers example.com/a, example.com/b",
		"└─Secret/b waits for the garbage collector, because its owner ConfigMap/c is gone",
		"Secret/d waits for a policy to decide about its dependents",
		"Secret/e waits for its dependents to be orphaned",
		"can't be read: pods: forbidden",
		"[##########--------------] 4 of 12 objects gone, 1 kept, 7 left, 3s",
	}
	if diff := cmp.Diff(want, liveLines(sample(), []string{"pods: forbidden"}, 3100*time.Millisecond)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	many := cascade.Status{Left: make([]cascade.Left, 100)}
	if lines := liveLines(many, nil, 0); len(lines) != maxRows+2 || lines[maxRows] != "… and 85 more" {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

// A pipe gets a line when something has changed, and now and then otherwise.
func TestPlainShower_WritesFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		shower := &plainShower{out: &out}
		s := cascade.Status{Left: make([]cascade.Left, 1000)}
		for range int(time.Minute / liveInterval) {
			if s.Gone < 50 {
				s.Gone++
				s.Left = s.Left[1:]
			}
			shower.status(s, nil)
			time.Sleep(liveInterval)
		}
		if n := strings.Count(out.String(), "\n"); n < 6 || n > 8 { // 10 s of changes, and 50 s of none
			t.Errorf("%d lines:\n%s", n, &out)
		}
	})
}

func TestFeed_ForgetsAnErrorWhenSomethingIsReceivedAgain(t *testing.T) {
	for name, receive := range map[string]func(*store) error{
		"an object":     func(s *store) error { return s.Add(&metav1.PartialObjectMetadata{}) },
		"an empty list": func(s *store) error { return s.Replace(nil, "1") },
	} {
		at := place{namespace: "shop"}
		f := newFeed(cascade.New(nil, nil))
		f.fail(at, errors.New("the server is down"))
		if _, unread := f.status(); len(unread) != 1 || !strings.Contains(unread[0], "the server is down") {
			t.Fatalf("%s: %q", name, unread)
		}
		if err := receive(&store{feed: f, place: at}); err != nil {
			t.Fatal(err)
		}
		if _, unread := f.status(); len(unread) != 0 {
			t.Errorf("after %s: %q", name, unread)
		}
	}
}

func TestHostileReport_IsEscaped(t *testing.T) {
	s := printertest.Filled[cascade.Status]()
	printertest.CheckReport(t, func(out io.Writer) error {
		shower := &plainShower{out: out}
		shower.status(s, []string{printertest.Hostile})
		writeEnd(out, s, []string{printertest.Hostile}, time.Second)
		return nil
	})
}
