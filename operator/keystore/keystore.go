// Package keystore keeps the keys that sign state annotations in a Secret in the
// operator's namespace. The leader creates the Secret if it is missing; every replica
// reads it. Which key signs is for the Secret to say; see operator/statekey.
//
// It never makes up a key that is not in the Secret: another replica, or the same one
// after a restart, could not verify what such a key has signed.
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
const SecretName = "gleaner-state-keys" //nolint:gosec // a name, no credential

const (
	// retryInterval is between two reads while there are no keys, and interval is
	// between two reads while there are: so long a rotated key takes to be used.
	retryInterval = time.Second
	interval      = 10 * time.Second

	readTimeout = 10 * time.Second // of one read, or of creating the Secret
)

var (
	errUnread  = errors.New("it has not been read yet")
	errMissing = errors.New("it does not exist, and is created by the replica that leads")
)

// Options are what a Store is made of. All are required.
type Options struct {
	Client    kubernetes.Interface
	Namespace string      // the operator's own
	Leads     func() bool // only the leader creates the Secret
	OnChange  func()      // is called when there are other keys
	Log       logr.Logger
}

// Store has the keys. Its methods may be called concurrently.
type Store struct {
	options Options
	pokes   chan struct{} // capacity 1: read now

	mu   sync.RWMutex // covers what follows
	keys statekey.Keys
	err  error // why there are none
}

// New returns a Store that has not read anything yet.
func New(o Options) *Store {
	s := &Store{options: o, pokes: make(chan struct{}, 1)}
	s.err = s.because(errUnread)
	return s
}

// Keys returns the keys. With an error there are none: nothing can be signed, and what
// is signed can't be verified.
func (s *Store) Keys() (statekey.Keys, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.keys, s.err
}

// Poke has the Secret read, or created, at once.
func (s *Store) Poke() {
	select {
	case s.pokes <- struct{}{}:
	default:
	}
}

// Run follows the Secret until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		s.refresh(ctx)
		wait := interval
		if _, err := s.Keys(); err != nil {
			wait = retryInterval
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.pokes:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// refresh reads the Secret, and creates it if it is missing and this replica leads.
func (s *Store) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	keys, err := Read(ctx, s.options.Client, s.options.Namespace)
	if apierrors.IsNotFound(err) {
		err = errMissing
		if s.options.Leads() {
			keys, err = s.create(ctx)
		}
	}
	if err != nil && s.has() && !definite(err) {
		return // the keys at hand still count
	}
	s.set(keys, err)
}

// definite reports whether an error says that the keys at hand are not those of the
// operator any more. That the API server is away does not.
func definite(err error) bool {
	return errors.Is(err, errMissing) || errors.Is(err, errInvalid) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

func (s *Store) has() bool {
	_, err := s.Keys()
	return err == nil
}

// errInvalid is a Secret that is there and holds no usable keys.
var errInvalid = errors.New("it is invalid")

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

// create creates the Secret with a random key. If somebody else has created it just
// now, theirs counts.
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
		return statekey.Keys{}, fmt.Errorf("create it: %w", err)
	}
	if err == nil {
		s.options.Log.Info("Created the keys of state annotations", "secret", s.options.Namespace+"/"+SecretName)
	}
	return Read(ctx, s.options.Client, s.options.Namespace)
}

// set takes keys over, or that there are none, and says so if that is new.
func (s *Store) set(keys statekey.Keys, err error) {
	if err != nil {
		keys, err = statekey.Keys{}, s.because(err)
	}
	s.mu.Lock()
	changed := !keys.Equal(s.keys)
	news := err != nil && (s.err == nil || s.err.Error() != err.Error())
	s.keys, s.err = keys, err
	s.mu.Unlock()
	if news {
		s.options.Log.Error(err, "State annotations can't be verified or written: objects that have some are kept",
			"fix", "let the operator get and create Secrets in its namespace: gleaner rbac --check")
	}
	if changed {
		s.options.Log.V(1).Info("Keys of state annotations changed", "available", err == nil)
		s.options.OnChange()
	}
}

func (s *Store) because(err error) error {
	return fmt.Errorf("read the keys of state annotations from Secret %s/%s: %w", s.options.Namespace, SecretName, err)
}
