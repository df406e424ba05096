// Package source fetches the bytes of modules: from the resource itself, from a
// ConfigMap, by HTTPS or from a registry. It checks what came against the digest
// that it should have, and keeps what has one for the time when the registry is
// out of reach.
//
// It compiles and runs nothing, knows no types of Kubernetes, and has no client of
// a cluster: what it needs from there is handed to it.
package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/gleaner-dev/gleaner/policies/source/egress"
	"github.com/gleaner-dev/gleaner/policies/source/oci"
)

// Language is what a module is written in, which decides what is looked for.
type Language string

const (
	Wasm Language = "wasm"
	Rego Language = "rego"
)

// Source says where a module is. Exactly one of Inline, ConfigMap, URL and Image
// is set.
type Source struct {
	Language Language

	Inline    string // Rego only
	ConfigMap *ConfigMap
	URL       string // https://…
	Image     string // registry/repository@sha256:…, or :tag

	// PullSecrets are documents of the type kubernetes.io/dockerconfigjson, for
	// Image. Whoever reads them sees to it that the module's author may.
	PullSecrets [][]byte
	// SHA256 is what the module has to have, decompressed, in hex. May be empty.
	SHA256 string

	// Namespace is that of the resource; empty for one of the whole cluster. What
	// was fetched for one namespace is not given to another from the cache.
	Namespace string
	// Private lets the source be at a loopback or private address. It is for
	// resources of the whole cluster.
	Private bool
}

// ConfigMap is one key of a ConfigMap that was read.
type ConfigMap struct {
	Name       string // as messages have it
	Key        string
	Data       map[string]string
	BinaryData map[string][]byte
}

// File is a file of a module.
type File = oci.File

// Fetched is a module that was fetched. It is shared with others who asked for
// the same, so nothing of it may be changed.
type Fetched struct {
	// Files are the module, decompressed: one, or of Rego one or more, by name.
	Files []File
	// Digest is its sha256; see the function of this name.
	Digest string
	// Pinned tells that the source can't come to mean another module. Without it,
	// nothing may be enforced.
	Pinned bool
	// Pin is what to write in the resource to have it pinned. Empty if it is.
	Pin string
	// From is where the module is from, for status messages. It holds no secrets.
	From string
	// KeepErr is why the module could not be kept for an outage. The module itself
	// is fine.
	KeepErr error
}

// Config is how modules are fetched.
type Config struct {
	// CacheDir keeps what was fetched by digest, between runs. Empty: nothing is
	// kept. It may be lost at any time.
	CacheDir string
	// Limits bound everything. Zero fields mean the default.
	Limits Limits
	// Network is the rules for addresses, the proxy and additional certificates.
	// What it says of Private and PlainLoopback does not count; Source does.
	Network egress.Config
}

// Fetcher fetches modules. It may be used by many at once.
type Fetcher struct {
	limits  Limits
	cache   *cache
	flights flights
	slots   slots

	public, private *http.Client
}

// New returns a fetcher. The error is about the configuration.
func New(c Config) (*Fetcher, error) {
	if err := c.Limits.Validate(); err != nil {
		return nil, err
	}
	f := &Fetcher{limits: c.Limits.orDefault()}
	f.slots.limits = f.limits
	f.cache = &cache{dir: c.CacheDir, most: f.limits.Cache}
	if c.CacheDir != "" {
		f.cache.dir = filepath.Clean(c.CacheDir)
	}
	var err error
	network := c.Network
	network.Redirects = f.limits.Redirects
	network.Private, network.PlainLoopback = false, false
	if f.public, err = egress.New(network); err != nil {
		return nil, fmt.Errorf("configure network: %w", err)
	}
	network.Private, network.PlainLoopback = true, true
	if f.private, err = egress.New(network); err != nil {
		return nil, fmt.Errorf("configure network: %w", err)
	}
	return f, nil
}

// Close closes connections that are not in use.
func (f *Fetcher) Close() {
	f.public.CloseIdleConnections()
	f.private.CloseIdleConnections()
}

// Fetch returns the module. Those who ask for the same at the same time are
// answered by one download. The error is an *Error when the source is to blame or
// whoever serves it, and the context's when that has ended.
func (f *Fetcher) Fetch(ctx context.Context, s Source) (Fetched, error) {
	if err := s.validate(); err != nil {
		return Fetched{}, err
	}
	if s.URL == "" && s.Image == "" {
		return f.fetchLocal(s)
	}
	key, err := s.key()
	if err != nil {
		return Fetched{}, err
	}
	return f.flights.do(ctx, key, func(ctx context.Context) (Fetched, error) {
		if s.URL != "" {
			return f.fetchURL(ctx, s)
		}
		return f.fetchImage(ctx, s)
	})
}

// key is the same for those only who would get the same in the same way.
func (s Source) key() (string, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode source: %w", err)
	}
	return hexSum(data), nil
}

func (s Source) validate() error {
	given := 0
	for _, is := range []bool{s.Inline != "", s.ConfigMap != nil, s.URL != "", s.Image != ""} {
		if is {
			given++
		}
	}
	switch {
	case s.Language != Wasm && s.Language != Rego:
		return fault(BadReference, "%q is no language of modules: use wasm or rego", s.Language)
	case given != 1:
		return fault(BadReference, "the source names %d places: use one of inline, configMap, url and image", given)
	case s.Inline != "" && s.Language != Rego:
		return fault(BadReference, "only Rego can be inline: put WebAssembly into a ConfigMap, a URL or an image")
	case s.SHA256 != "" && !isHexSum(s.SHA256):
		return fault(BadReference, "%q is no sha256: use 64 hex digits in lower case, as sha256sum prints them", s.SHA256)
	}
	return nil
}

func (f *Fetcher) client(s Source) *http.Client {
	if s.Private {
		return f.private
	}
	return f.public
}

func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func isHexSum(s string) bool {
	sum, err := hex.DecodeString(s)
	return err == nil && len(sum) == sha256.Size && hex.EncodeToString(sum) == s
}
