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
	// vaultLife is for how long a Secret is taken to be what it was: an intent reads
	// several entries of one, and a module has several intents.
	vaultLife = 3 * time.Second

	vaultKept = 1000
)

// vault reads Secrets and ConfigMaps as service accounts.
type vault struct {
	accounts *accounts
	now      func() time.Time

	mu   sync.Mutex // covers kept
	kept map[vaultKey]vaultEntry
}

type vaultKey struct {
	who       policies.Account
	name      types.NamespacedName
	configMap bool
}

type vaultEntry struct {
	data map[string]string
	at   time.Time
}

func newVault(a *accounts, now func() time.Time) *vault {
	return &vault{accounts: a, now: now, kept: map[vaultKey]vaultEntry{}}
}

// secret reads an entry of a Secret. A line's end after it, which tools leave there,
// is no part of it.
func (v *vault) secret(ctx context.Context, on Behalf, ref policies.SecretKey) (string, error) {
	value, err := v.entry(ctx, on, policies.Certificates{SecretKey: ref})
	if err != nil {
		return "", err
	}
	value = strings.TrimRight(value, "\r\n")
	if value == "" {
		return "", problemf(hostabi.ErrorUnavailable, "entry %s of Secret %s, which a grant names, is empty", ref.Key, ref.NamespacedName)
	}
	return value, nil
}

// entry reads one entry.
func (v *vault) entry(ctx context.Context, on Behalf, ref policies.Certificates) (string, error) {
	what := fmt.Sprintf("Secret %s", ref.NamespacedName)
	if ref.ConfigMap {
		what = fmt.Sprintf("ConfigMap %s", ref.NamespacedName)
	}
	if on.Account == (policies.Account{}) {
		return "", problemf(hostabi.ErrorNotGranted, "no serviceAccount is named, as which %s could be read", what)
	}
	if on.Namespace != "" && (ref.Namespace != on.Namespace || on.Account.Namespace != on.Namespace) {
		return "", problemf(hostabi.ErrorNotGranted, "%s is not read for a resource of namespace %s by a serviceAccount of %s", what, on.Namespace, on.Account.Namespace)
	}
	if err := segments(hostabi.Target{Namespace: ref.Namespace, Name: ref.Name}); err != nil {
		return "", err
	}
	key := vaultKey{on.Account, ref.NamespacedName, ref.ConfigMap}
	data, ok := v.known(key)
	if !ok {
		var err error
		asked := v.now()
		if data, err = v.read(ctx, key, what); err != nil {
			return "", err
		}
		v.keep(key, vaultEntry{data, asked})
	}
	value, ok := data[ref.Key]
	if !ok {
		return "", problemf(hostabi.ErrorUnavailable, "%s, which a grant names, has no entry %s", what, ref.Key)
	}
	return value, nil
}

func (v *vault) known(key vaultKey) (map[string]string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	entry, ok := v.kept[key]
	if !ok || v.now().Sub(entry.at) >= vaultLife {
		return nil, false
	}
	return entry.data, true
}

// keep also forgets what is out of date: credentials are held no longer than they
// are of use.
func (v *vault) keep(key vaultKey, fresh vaultEntry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for other, entry := range v.kept {
		if fresh.at.Sub(entry.at) >= vaultLife || len(v.kept) >= vaultKept {
			delete(v.kept, other)
		}
	}
	v.kept[key] = fresh
}

// read asks the API server. That there is no such Secret is not what the module
// asked about: it must not look as if its own object were gone.
func (v *vault) read(ctx context.Context, key vaultKey, what string) (map[string]string, error) {
	c := call{
		method: http.MethodGet, resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"},
		namespace: key.name.Namespace, name: key.name.Name,
	}
	if key.configMap {
		c.resource.Resource = "configmaps"
	}
	answer, err := v.accounts.do(ctx, key.who, c)
	if err != nil {
		reason := reasonOf(c, err)
		if reason == hostabi.ErrorForbidden {
			return nil, problemf(reason, "read %s, which a grant names: %s: %s", what, forbidden(key.who, c), cause(err))
		}
		return nil, problemf(hostabi.ErrorUnavailable, "read %s, which a grant names: %s", what, cause(err))
	}
	if key.configMap {
		var configMap struct{ Data map[string]string }
		err = json.Unmarshal(answer, &configMap)
		return configMap.Data, unreadable(what, err)
	}
	var secret struct{ Data map[string][]byte }
	err = json.Unmarshal(answer, &secret)
	data := map[string]string{}
	for name, value := range secret.Data {
		data[name] = string(value)
	}
	return data, unreadable(what, err)
}

// unreadable keeps what could not be read out of the error.
func unreadable(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read %s, which a grant names: %w", what, errors.New("the answer is no such object"))
}
