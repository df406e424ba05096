// Package keystore stores the keys that sign state annotations in a Secret in the
// operator's namespace. The leader creates the Secret if it is missing; every replica
// reads it. The Secret determines which key signs; see operator/statekey.
//
// It never generates a key outside the Secret: another replica, or the same one after a
// restart, could not verify its signatures.
package keystore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// SecretName is the name of the Secret.
const SecretName = "gleaner-state-keys" //nolint:gosec // a name, not a credential

const (
	// retryInterval is the interval between reads while no keys are available, and interval
	// the one while they are: a rotated key is used after that time.
	retryInterval   = time.Second
	refreshInterval = 10 * time.Second

	readTimeout = 10 * time.Second // for one read, or for creating the Secret
)

var (
	errNotRead = errors.New("not read yet")
	errMissing = errors.New("not found; it will be created by the leader")
)

// Options configure a Store. All fields are required.
type Options struct {
	Client    kubernetes.Interface
	Namespace string      // the operator's own
	IsLeader  func() bool // only the leader creates the Secret
	OnChange  func()      // called when the keys have changed
	Log       logr.Logger
}

// A Store provides the keys. Its methods may be called concurrently.
type Store struct {
	options  Options
	triggers chan struct{} // capacity 1: read now

	mu   sync.RWMutex // protects the fields below
	keys statekey.Keys
	err  error // why no keys are available
}

// New returns a Store without keys; Run reads them.
func New(o Options) *Store {
	s := &Store{options: o, triggers: make(chan struct{}, 1)}
	s.err = s.wrapError(errNotRead)
	return s
}

// Keys returns the keys. If it returns an error, state annotations can't be signed or
// verified.
func (s *Store) Keys() (statekey.Keys, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.keys, s.err
}

// Trigger triggers an immediate read, or creation, of the Secret.
func (s *Store) Trigger() {
	select {
	case s.triggers <- struct{}{}:
	default:
	}
}

// Run polls the Secret until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		s.refresh(ctx)
		wait := refreshInterval
		if _, err := s.Keys(); err != nil {
			wait = retryInterval
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.triggers:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// refresh reads the Secret, and creates it if it is missing and this replica is the leader.
func (s *Store) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	keys, err := Read(ctx, s.options.Client, s.options.Namespace)
	if apierrors.IsNotFound(err) {
		err = errMissing
		if s.options.IsLeader() {
			keys, err = s.create(ctx)
		}
	}
	if err != nil && s.hasKeys() && !invalidatesKeys(err) {
		return // keep the current keys
	}
	s.setKeys(keys, err)
}

// invalidatesKeys reports whether an error means that the current keys are no longer valid. An
// unavailable API server does not.
func invalidatesKeys(err error) bool {
	return errors.Is(err, errMissing) || errors.Is(err, errInvalid) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

func (s *Store) hasKeys() bool {
	_, err := s.Keys()
	return err == nil
}

// errInvalid means that the Secret exists and has no usable keys.
var errInvalid = errors.New("invalid Secret")

// Read reads the keys from the Secret in the operator's namespace.
func Read(ctx context.Context, client kubernetes.Interface, namespace string) (statekey.Keys, error) {
	secret, err := client.CoreV1().Secrets(namespace).Get(ctx, SecretName, metav1.GetOptions{})
	if err != nil {
		return statekey.Keys{}, err
	}
	keys, err := statekey.Parse(secret.Data)
	if err != nil {
		return statekey.Keys{}, fmt.Errorf("%w: %w", errInvalid, err)
	}
	return keys, nil
}

// create creates the Secret with a random key. If it was created concurrently, the existing
// Secret is used.
func (s *Store) create(ctx context.Context) (statekey.Keys, error) {
	key := make([]byte, statekey.MinBytes)
	if _, err := rand.Read(key); err != nil {
		return statekey.Keys{}, err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: SecretName, Namespace: s.options.Namespace, Labels: map[string]string{"app.kubernetes.io/managed-by": "gleaner"},
		},
		Data: map[string][]byte{statekey.Current: key},
	}
	_, err := s.options.Client.CoreV1().Secrets(s.options.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return statekey.Keys{}, fmt.Errorf("create Secret: %w", err)
	}
	if err == nil {
		s.options.Log.Info("Created state annotation keys", "secret", s.options.Namespace+"/"+SecretName)
	}
	return Read(ctx, s.options.Client, s.options.Namespace)
}

// setKeys stores the keys or the error, and logs changes.
func (s *Store) setKeys(keys statekey.Keys, err error) {
	if err != nil {
		keys, err = statekey.Keys{}, s.wrapError(err)
	}
	s.mu.Lock()
	changed := !keys.Equal(s.keys)
	isNew := err != nil && (s.err == nil || s.err.Error() != err.Error())
	s.keys, s.err = keys, err
	s.mu.Unlock()
	if isNew {
		s.options.Log.Error(err, "State annotation keys are unavailable: objects with state annotations are kept",
			"fix", "allow the operator to get and create Secrets in its namespace; check with gleaner rbac --check")
	}
	if changed {
		s.options.Log.V(1).Info("State annotation keys changed", "available", err == nil)
		s.options.OnChange()
	}
}

func (s *Store) wrapError(err error) error {
	return fmt.Errorf("read state annotation keys from Secret %s/%s: %w", s.options.Namespace, SecretName, err)
}
