package modules

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
)

// fetch gets a module's files from where its resource says they are. It is called by many
// at once.
func (k *Keeper) fetch(ctx context.Context, m modulestore.Resource) (source.Fetched, error) {
	if k.options.Given != nil {
		if files, given := k.options.Given(m.String()); given {
			return source.Fetched{Files: files, Digest: source.Digest(files), Pinned: true}, nil
		}
	}
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
	if configMap != nil {
		read, err := k.configMap(ctx, m, *configMap)
		if err != nil {
			return source.Fetched{}, err
		}
		s.ConfigMap = read
	}
	for _, ref := range secrets {
		secret, err := k.pullSecret(ctx, m, ref)
		if err != nil {
			return source.Fetched{}, err
		}
		s.PullSecrets = append(s.PullSecrets, secret)
	}
	fetched, err := k.fetcher.Fetch(ctx, s)
	if unreached := (*egress.Unreached)(nil); errors.As(err, &unreached) {
		k.options.Log.Info("Module was not fetched", "module", m.String(), "host", unreached.Host, "cause", unreached.Cause.Error())
	}
	if err != nil {
		return fetched, err
	}
	if why, is := k.ledger.learn(sizeKey{m.UID, m.Generation}, fetched.Files); is {
		return source.Fetched{}, &source.Error{Reason: reasonQuota, Message: why.message}
	}
	return fetched, nil
}

func (k *Keeper) configMap(ctx context.Context, m modulestore.Resource, ref v1alpha1.ConfigMapKeyReference) (*source.ConfigMap, error) {
	key, _ := m.ConfigMap()
	var o corev1.ConfigMap
	if err := k.source.Get(ctx, key, &o); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &source.Error{Reason: source.NotFound, Message: fmt.Sprintf("there is no ConfigMap %s: create it, or name another", key)}
		}
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	return &source.ConfigMap{Name: key.String(), Key: ref.Key, Data: o.Data, BinaryData: o.BinaryData}, nil
}

func (k *Keeper) pullSecret(ctx context.Context, m modulestore.Resource, ref v1alpha1.SecretReference) ([]byte, error) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if m.Namespace != "" {
		key.Namespace = m.Namespace
	}
	var o corev1.Secret
	if err := k.source.Get(ctx, key, &o); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &source.Error{Reason: source.BadPullSecret, Message: fmt.Sprintf("there is no Secret %s: create it, or name another in pullSecrets", key), Temporary: true}
		}
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	if o.Type != corev1.SecretTypeDockerConfigJson {
		return nil, &source.Error{Reason: source.BadPullSecret, Message: fmt.Sprintf(
			"Secret %s is of type %q: pull secrets are of type %s, as kubectl create secret docker-registry makes them", key, o.Type, corev1.SecretTypeDockerConfigJson)}
	}
	return o.Data[corev1.DockerConfigJsonKey], nil
}
