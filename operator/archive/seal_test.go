package archive

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var testTime = time.Date(2026, 5, 1, 12, 0, 0, 123, time.UTC)

func object(kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"key": "value", "number": int64(1 << 60)}}}
	o.SetAPIVersion("v1")
	o.SetKind(kind)
	o.SetNamespace("shop")
	o.SetName(name)
	o.SetUID("0fb3e1d2-0000-4000-8000-000000000001")
	o.SetResourceVersion("1234")
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "owner"}})
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Apply"}})
	return o
}

func seal(t *testing.T, o *unstructured.Unstructured, recipients ...age.Recipient) Entry {
	t.Helper()
	e, err := Seal(o, Header{Time: testTime, Policies: []string{"ArchivePolicy shop/all"}}, recipients)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestSeal_OpenReturnsTheObjectWithoutManagedFields(t *testing.T) {
	key := identity(t)
	for name, recipients := range map[string][]age.Recipient{"not encrypted": nil, "encrypted": {key.Recipient()}} {
		t.Run(name, func(t *testing.T) {
			o := object("ConfigMap", "settings")
			e := seal(t, o, recipients...)
			got, err := Open(e.Header, e.Body, key)
			if err != nil {
				t.Fatal(err)
			}
			want := object("ConfigMap", "settings")
			want.SetManagedFields(nil)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(object("ConfigMap", "settings"), o); diff != "" {
				t.Errorf("Seal changed its argument (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSeal_SetsTheHeader(t *testing.T) {
	e := seal(t, object("ConfigMap", "settings"))
	want := Header{
		ID: e.ID, Time: testTime, ResourceVersion: "1234", Policies: []string{"ArchivePolicy shop/all"},
		Object:  Reference{"v1", "ConfigMap", "shop", "settings", "0fb3e1d2-0000-4000-8000-000000000001"},
		Owners:  []Reference{{"apps/v1", "Deployment", "shop", "web", "owner"}},
		Content: DigestOf(e.Body), Size: int64(len(e.Body)),
	}
	if diff := cmp.Diff(want, e.Header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
}

func TestSeal_IDsAscendInTime(t *testing.T) {
	last := ""
	for i := range 100 {
		e, err := Seal(object("ConfigMap", "settings"), Header{Time: testTime.Add(time.Duration(i / 10))}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if e.ID <= last || !strings.HasPrefix(e.ID, IDPrefix(e.Time)) {
			t.Fatalf("ID %s after %s at %s", e.ID, last, e.Time)
		}
		last = e.ID
	}
}

func TestSeal_EqualObjectsHaveEqualBodies(t *testing.T) {
	first := seal(t, object("ConfigMap", "settings"))
	for range 20 {
		if next := seal(t, object("ConfigMap", "settings")); next.Content != first.Content {
			t.Fatalf("content %s, then %s", first.Content, next.Content)
		}
	}
	key := identity(t)
	if a, b := seal(t, object("Secret", "s"), key.Recipient()), seal(t, object("Secret", "s"), key.Recipient()); a.Content == b.Content {
		t.Error("equal ciphertexts show that two Secrets are equal")
	}
}

func TestSeal_SecretsNeedRecipients(t *testing.T) {
	if _, err := Seal(object("Secret", "password"), Header{Time: testTime}, nil); err == nil || !strings.Contains(err.Error(), "recipients") {
		t.Errorf("error %v, want one about recipients", err)
	}
	if ok, reason := Archivable(schema.GroupKind{Kind: "Secret"}, 0); ok || reason == "" {
		t.Errorf("Archivable: %t, %q", ok, reason)
	}
	for gk, recipients := range map[schema.GroupKind]int{{Kind: "Secret"}: 1, {Kind: "ConfigMap"}: 0, {Group: "example.com", Kind: "Secret"}: 0} {
		if ok, reason := Archivable(gk, recipients); !ok || reason != "" {
			t.Errorf("%s with %d recipients: %t, %q", gk, recipients, ok, reason)
		}
	}
}

func TestSeal_EncryptsTheWholeObject(t *testing.T) {
	o := object("Secret", "password")
	o.SetAnnotations(map[string]string{"last-applied": "hunter2"})
	e := seal(t, o, identity(t).Recipient())
	header := fmt.Sprintf("%+v", e.Header)
	if bytes.Contains(e.Body, []byte("hunter2")) || bytes.Contains(e.Body, []byte("password")) || strings.Contains(header, "hunter2") {
		t.Error("the entry shows what is in the object")
	}
}

func TestSeal_RefusesWhatIsTooLargeOrHasNoTime(t *testing.T) {
	large := object("ConfigMap", "large")
	if err := unstructured.SetNestedField(large.Object, strings.Repeat("x", MaxObjectBytes), "data", "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := Seal(large, Header{Time: testTime}, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v, want ErrTooLarge", err)
	}
	if _, err := Seal(object("ConfigMap", "c"), Header{}, nil); err == nil {
		t.Error("an entry without a time is accepted")
	}
}

func TestOpen_NeedsAMatchingIdentity(t *testing.T) {
	e := seal(t, object("Secret", "password"), identity(t).Recipient(), identity(t).Recipient())
	_, err := Open(e.Header, e.Body)
	want := "open Secret shop/password: no matching identity: it is encrypted to 2 recipients: pass --identity FILE"
	if !errors.Is(err, ErrIdentity) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	_, err = Open(e.Header, e.Body, identity(t), identity(t))
	want = "open Secret shop/password: no matching identity: it is encrypted to 2 recipients, and the 2 identities in the identity file cannot decrypt it"
	if !errors.Is(err, ErrIdentity) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestOpen_EveryFlippedBitIsCorrupt(t *testing.T) {
	key := identity(t)
	for name, e := range map[string]Entry{
		"not encrypted": seal(t, object("ConfigMap", "c")), "encrypted": seal(t, object("Secret", "s"), key.Recipient()),
	} {
		t.Run(name, func(t *testing.T) {
			for i := range e.Body {
				body := bytes.Clone(e.Body)
				body[i] ^= 1
				if _, err := Open(e.Header, body, key); !errors.Is(err, ErrCorrupt) {
					t.Fatalf("byte %d: error %v, want ErrCorrupt", i, err)
				}
				h := e.Header
				h.Content = DigestOf(body) // by who can write to the store
				if _, err := Open(h, body, key); err == nil && h.Recipients > 0 {
					t.Fatalf("byte %d: an altered ciphertext is accepted", i)
				}
			}
			if _, err := Open(e.Header, e.Body[:len(e.Body)-1], key); !errors.Is(err, ErrCorrupt) {
				t.Errorf("error %v, want ErrCorrupt", err)
			}
		})
	}
}

func TestOpen_ChecksThatTheBodyIsOfTheHeader(t *testing.T) {
	e := seal(t, object("ConfigMap", "settings"))
	for name, alter := range map[string]func(*Reference){
		"UID": func(r *Reference) { r.UID = "other" }, "name": func(r *Reference) { r.Name = "other" },
		"namespace": func(r *Reference) { r.Namespace = "other" }, "kind": func(r *Reference) { r.Kind = "Pod" },
		"version": func(r *Reference) { r.APIVersion = "v2" },
	} {
		h := e.Header
		alter(&h.Object)
		if _, err := Open(h, e.Body); !errors.Is(err, ErrCorrupt) {
			t.Errorf("another %s: error %v, want ErrCorrupt", name, err)
		}
	}
}

func TestOpen_BoundsTheDecompressedSize(t *testing.T) {
	var bomb bytes.Buffer
	w, err := zstd.NewWriter(&bomb, zstd.WithWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range 64 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	frame, err := Compress(make([]byte, 3<<20))
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{"one frame": bomb.Bytes(), "many frames": bytes.Repeat(frame, 50)} {
		h := Header{Content: DigestOf(body), Size: int64(len(body))}
		if _, err := Open(h, body); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: error %v, want ErrTooLarge", name, err)
		}
	}
}

func TestMaxBodyBytes_FitsTheLargestObject(t *testing.T) {
	plain := make([]byte, MaxObjectBytes)
	_, _ = rand.Read(plain)
	body, err := Compress(plain)
	if err != nil {
		t.Fatal(err)
	}
	key, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	recipients := make([]age.Recipient, MaxRecipients)
	for i := range recipients {
		recipients[i] = key.Recipient()
	}
	if body, err = encrypt(body, recipients); err != nil {
		t.Fatal(err)
	}
	if len(body) > MaxBodyBytes {
		t.Errorf("%d bytes, want at most %d", len(body), MaxBodyBytes)
	}
	h := Header{Content: DigestOf(body), Size: int64(len(body)), Recipients: len(recipients)}
	if _, err := Open(h, body, key); !errors.Is(err, ErrCorrupt) { // it is no JSON, but was read
		t.Errorf("error %v, want ErrCorrupt", err)
	}
}

func FuzzOpen(f *testing.F) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		f.Fatal(err)
	}
	for _, recipients := range [][]age.Recipient{nil, {key.Recipient()}} {
		e, err := Seal(object("ConfigMap", "c"), Header{Time: testTime}, recipients)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(e.Body, len(recipients))
	}
	ref := ReferenceOf(object("ConfigMap", "c"))
	f.Fuzz(func(t *testing.T, body []byte, recipients int) {
		h := Header{Object: ref, Content: DigestOf(body), Size: int64(len(body)), Recipients: recipients}
		o, err := Open(h, body, key)
		switch {
		case err == nil && ReferenceOf(o) != ref:
			t.Errorf("%s was opened as %s", ReferenceOf(o), ref)
		case err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrIdentity):
			t.Errorf("error %v has no kind", err)
		}
	})
}
