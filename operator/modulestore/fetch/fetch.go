// Package fetch gets the files of a module from where its resource says they are: inline,
// a ConfigMap, an image or a URL. It reads ConfigMaps and pull Secrets from the API server,
// and keeps nothing but what package source caches.
package fetch

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
)

// Fetcher fetches modules. All fields but Trust and Override are required. Its methods may be
// called concurrently.
type Fetcher struct {
	Reader client.Reader // of ConfigMaps and Secrets
	Source *source.Fetcher
	Log    logr.Logger

	Trust Trust

	// Override returns the files to use instead of what the resource says, by the name of
	// the module as modulestore.Ref.String returns it. Nil: none.
	Override func(module string) ([]source.File, bool)
}

// Fetch returns the files of a module. The error is a *source.Error when the resource or
// its source is to blame.
func (f *Fetcher) Fetch(ctx context.Context, m modulestore.Resource) (source.Fetched, error) {
	if f.Override != nil {
		if files, ok := f.Override(m.String()); ok {
			return source.Fetched{Files: files, Digest: source.Digest(files), Pinned: true}, nil
		}
	}
	s, err := f.sourceOf(ctx, m)
	if err != nil {
		return source.Fetched{}, err
	}
	fetched, err := f.Source.Fetch(ctx, s)
	if unreached := (*egress.UnreachableHostError)(nil); errors.As(err, &unreached) {
		f.Log.Info("Module was not fetched", "module", m.String(), "host", unreached.Host, "cause", unreached.Cause.Error())
	}
	return fetched, err
}

// sourceOf reads what a resource refers to.
func (f *Fetcher) sourceOf(ctx context.Context, m modulestore.Resource) (source.Source, error) {
	s := source.Source{SHA256: m.Spec.SHA256, Namespace: m.Namespace, Private: m.Namespace == ""}
	var configMap *v1alpha1.ConfigMapKeyReference
	var secrets []v1alpha1.SecretReference
	if r := m.Spec.Rego; r != nil {
		s.Language, s.Image = source.Rego, string(r.Image)
		configMap, secrets = r.ConfigMap, r.PullSecrets
		if r.Inline != nil {
			s.Inline = *r.Inline
		}
	} else if w := m.Spec.Wasm; w != nil {
		s.Language, s.Image, s.URL = source.Wasm, string(w.Image), w.URL
		configMap, secrets = w.ConfigMap, w.PullSecrets
	}
	var err error
	if s.Signatures, err = f.Trust.requirements(m); err != nil {
		return s, err
	}
	if configMap != nil {
		read, err := f.configMap(ctx, m, *configMap)
		if err != nil {
			return s, err
		}
		s.ConfigMap = read
	}
	for _, ref := range secrets {
		secret, err := f.pullSecret(ctx, m, ref)
		if err != nil {
			return s, err
		}
		s.PullSecrets = append(s.PullSecrets, secret)
	}
	return s, nil
}

func (f *Fetcher) configMap(ctx context.Context, m modulestore.Resource, ref v1alpha1.ConfigMapKeyReference) (*source.ConfigMap, error) {
	key, _ := m.ConfigMap()
	var o corev1.ConfigMap
	if err := f.Reader.Get(ctx, key, &o); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &source.Error{Reason: source.NotFound, Message: fmt.Sprintf("there is no ConfigMap %s: create it, or name another", key)}
		}
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	return &source.ConfigMap{Name: key.String(), Key: ref.Key, Data: o.Data, BinaryData: o.BinaryData}, nil
}

func (f *Fetcher) pullSecret(ctx context.Context, m modulestore.Resource, ref v1alpha1.SecretReference) ([]byte, error) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if m.Namespace != "" {
		key.Namespace = m.Namespace
	}
	var o corev1.Secret
	if err := f.Reader.Get(ctx, key, &o); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &source.Error{Reason: source.InvalidPullSecret, Message: fmt.Sprintf("there is no Secret %s: create it, or name another in pullSecrets", key), Temporary: true}
		}
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	if o.Type != corev1.SecretTypeDockerConfigJson {
		return nil, &source.Error{Reason: source.InvalidPullSecret, Message: fmt.Sprintf(
			"Secret %s is of type %q: pull secrets are of type %s, as kubectl create secret docker-registry makes them", key, o.Type, corev1.SecretTypeDockerConfigJson)}
	}
	return o.Data[corev1.DockerConfigJsonKey], nil
}
