package keystore

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gleaner-dev/gleaner/operator/statekey"
)

const ns = "gleaner-system"

// A replica has a Store that tests refresh manually.
type replica struct {
	*Store
	leader  bool
	changes int
}

func newReplica(client *fake.Clientset, leads bool) *replica {
	r := &replica{leader: leads}
	r.Store = New(Options{
		Client: client, Namespace: ns, IsLeader: func() bool { return r.leader }, OnChange: func() { r.changes++ }, Log: logr.Discard(),
	})
	return r
}

// wantKeys asserts that the replica has keys, or the error want.
func (r *replica) wantKeys(t *testing.T, want error, text string) statekey.Keys {
	t.Helper()
	keys, err := r.Keys()
	if !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), text) {
		t.Fatalf("keys: %v; want %v: %s", err, want, text)
	}
	if (err == nil) == keys.Equal(statekey.Keys{}) {
		t.Fatalf("error %v, and keys or none", err)
	}
	return keys
}

func TestKeys_CreatedByTheLeaderAndSharedByAll(t *testing.T) {
	client := fake.NewClientset()
	follower, leader := newReplica(client, false), newReplica(client, true)
	follower.wantKeys(t, errNotRead, ns+"/"+SecretName)
	follower.refresh(t.Context())
	follower.wantKeys(t, errMissing, "created by the leader")
	leader.refresh(t.Context())
	keys := leader.wantKeys(t, nil, "")
	follower.refresh(t.Context())
	if !follower.wantKeys(t, nil, "").Equal(keys) {
		t.Error("the follower has other keys")
	}
	restarted := newReplica(client, true)
	restarted.refresh(t.Context())
	if !restarted.wantKeys(t, nil, "").Equal(keys) || leader.changes != 1 || restarted.changes != 1 {
		t.Errorf("keys differ after a restart, or OnChange was not called once: %d, %d", leader.changes, restarted.changes)
	}
}

func TestKeys_ConcurrentlyCreatedSecretIsUsed(t *testing.T) {
	client := fake.NewClientset()
	theirs := bytes.Repeat([]byte{7}, statekey.MinBytes)
	client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: SecretName}, Data: map[string][]byte{statekey.Current: theirs}}
		if err := client.Tracker().Add(secret); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, SecretName)
	})
	r := newReplica(client, true)
	r.refresh(t.Context())
	want, err := statekey.Parse(map[string][]byte{statekey.Current: theirs})
	if err != nil || !r.wantKeys(t, nil, "").Equal(want) {
		t.Errorf("the keys are not those of the replica that was first (%v)", err)
	}
}

func TestKeys_NeverGeneratedOutsideTheSecret(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, SecretName, errors.New("no right"))
	for name, verb := range map[string]string{"it may not read the Secret": "get", "it may not create it": "create"} {
		client := fake.NewClientset()
		client.PrependReactor(verb, "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
		r := newReplica(client, true)
		r.refresh(t.Context())
		if _, err := r.Keys(); err == nil || !strings.Contains(err.Error(), "no right") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeys_KeptWhileTheAPIServerIsUnavailable(t *testing.T) {
	client := fake.NewClientset()
	r := newReplica(client, true)
	r.refresh(t.Context())
	keys := r.wantKeys(t, nil, "")
	var readErr error = apierrors.NewServiceUnavailable("it is away")
	client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return readErr != nil, nil, readErr })
	r.refresh(t.Context())
	if !r.wantKeys(t, nil, "").Equal(keys) {
		t.Error("other keys")
	}
	readErr = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, SecretName, errors.New("not any more"))
	r.refresh(t.Context())
	if _, err := r.Keys(); !apierrors.IsForbidden(err) {
		t.Errorf("after the right was taken away: %v", err)
	}
	readErr = nil
	r.refresh(t.Context())
	if !r.wantKeys(t, nil, "").Equal(keys) || r.changes != 3 {
		t.Errorf("they are not back; %d changes", r.changes)
	}
}

func TestKeys_InvalidSecretIsAnError(t *testing.T) {
	for name, data := range map[string]map[string][]byte{
		"empty": nil, "none signs": {"previous": bytes.Repeat([]byte{1}, 32)}, "short": {statekey.Current: []byte("secret")},
	} {
		client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: SecretName}, Data: data})
		r := newReplica(client, true)
		r.refresh(t.Context())
		if _, err := r.Keys(); !errors.Is(err, errInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
