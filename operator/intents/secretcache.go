package intents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// secretCacheTTL is how long a Secret is cached: an intent reads several keys of one, and a
	// module has several intents.
	secretCacheTTL = 3 * time.Second

	maxCachedObjects = 1000
)

// A secretCache reads and caches Secrets and ConfigMaps as service accounts.
type secretCache struct {
	clients *apiClients
	now     func() time.Time

	mu      sync.Mutex // protects entries
	entries map[cacheKey]cachedObject
}

type cacheKey struct {
	account   policies.ServiceAccount
	name      types.NamespacedName
	configMap bool
}

type cachedObject struct {
	data   map[string]string
	readAt time.Time
}

func newSecretCache(a *apiClients, now func() time.Time) *secretCache {
	return &secretCache{clients: a, now: now, entries: map[cacheKey]cachedObject{}}
}

// secretValue returns the value of a Secret's key, without trailing line breaks.
func (v *secretCache) secretValue(ctx context.Context, identity Identity, ref policies.SecretKey) (string, error) {
	value, err := v.value(ctx, identity, policies.CASource{SecretKey: ref})
	if err != nil {
		return "", err
	}
	value = strings.TrimRight(value, "\r\n")
	if value == "" {
		return "", errorf(hostabi.ErrorUnavailable, "key %s of Secret %s, referenced by a grant, is empty", ref.Key, ref.NamespacedName)
	}
	return value, nil
}

// value returns the value of one key.
func (v *secretCache) value(ctx context.Context, identity Identity, ref policies.CASource) (string, error) {
	description := fmt.Sprintf("Secret %s", ref.NamespacedName)
	if ref.ConfigMap {
		description = fmt.Sprintf("ConfigMap %s", ref.NamespacedName)
	}
	if identity.Account == (policies.ServiceAccount{}) {
		return "", errorf(hostabi.ErrorNotGranted, "no serviceAccount is set to read %s", description)
	}
	if identity.Namespace != "" && (ref.Namespace != identity.Namespace || identity.Account.Namespace != identity.Namespace) {
		return "", errorf(hostabi.ErrorNotGranted, "%s and serviceAccount must be in namespace %s: serviceAccount is in %s", description, identity.Namespace, identity.Account.Namespace)
	}
	if err := checkPathSegments(hostabi.Target{Namespace: ref.Namespace, Name: ref.Name}); err != nil {
		return "", err
	}
	key := cacheKey{identity.Account, ref.NamespacedName, ref.ConfigMap}
	data, ok := v.lookup(key)
	if !ok {
		var err error
		requests := v.now()
		if data, err = v.read(ctx, key, description); err != nil {
			return "", err
		}
		v.store(key, cachedObject{data, requests})
	}
	value, ok := data[ref.Key]
	if !ok {
		return "", errorf(hostabi.ErrorUnavailable, "%s, referenced by a grant, has no key %s", description, ref.Key)
	}
	return value, nil
}

func (v *secretCache) lookup(key cacheKey) (map[string]string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	entry, ok := v.entries[key]
	if !ok || v.now().Sub(entry.readAt) >= secretCacheTTL {
		return nil, false
	}
	return entry.data, true
}

// store stores an entry, and evicts expired ones: credentials are not held longer than
// necessary.
func (v *secretCache) store(key cacheKey, fresh cachedObject) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for other, entry := range v.entries {
		if fresh.readAt.Sub(entry.readAt) >= secretCacheTTL || len(v.entries) >= maxCachedObjects {
			delete(v.entries, other)
		}
	}
	v.entries[key] = fresh
}

// read reads an object from the API server. If it does not exist, the error is not
// NotFound: that would look to the module as if the object of its intent were gone.
func (v *secretCache) read(ctx context.Context, key cacheKey, description string) (map[string]string, error) {
	c := apiCall{
		method: http.MethodGet, resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"},
		namespace: key.name.Namespace, name: key.name.Name,
	}
	if key.configMap {
		c.resource.Resource = "configmaps"
	}
	response, err := v.clients.do(ctx, key.account, c)
	if err != nil {
		reason := reasonOf(c, err)
		if reason == hostabi.ErrorForbidden {
			return nil, errorf(reason, "read %s, referenced by a grant: %s: %s", description, describeForbidden(key.account, c), withoutURL(err))
		}
		return nil, errorf(hostabi.ErrorUnavailable, "read %s, referenced by a grant: %s", description, withoutURL(err))
	}
	if key.configMap {
		var configMap struct{ Data map[string]string }
		err = json.Unmarshal(response, &configMap)
		return configMap.Data, decodeError(description, err)
	}
	var secret struct{ Data map[string][]byte }
	err = json.Unmarshal(response, &secret)
	data := map[string]string{}
	for name, value := range secret.Data {
		data[name] = string(value)
	}
	return data, decodeError(description, err)
}

// decodeError returns an error without the content that could not be decoded.
func decodeError(description string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read %s, referenced by a grant: %w", description, errors.New("decode response"))
}
