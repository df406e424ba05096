// Package source fetches the content of modules: from the resource itself, from a
// ConfigMap, over HTTPS or from a registry. It verifies the content against its
// digest, and caches content with a digest in case the registry is unavailable.
//
// It does not compile or run modules, does not depend on Kubernetes types, and has
// no client of a cluster: the caller passes what it needs.
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
	"github.com/gleaner-dev/gleaner/policies/source/signature"
)

// Language is the language of a module.
type Language string

const (
	Wasm Language = "wasm"
	Rego Language = "rego"
)

// Source is the source of a module. Exactly one of Inline, ConfigMap, URL and Image
// is set.
type Source struct {
	Language Language

	Inline    string // Rego only
	ConfigMap *ConfigMap
	URL       string // https://…
	Image     string // registry/repository@sha256:…, or :tag

	// PullSecrets are documents of the type kubernetes.io/dockerconfigjson, for
	// Image. The caller ensures that the module's author may use them.
	PullSecrets [][]byte
	// SHA256 is the expected digest of the module, decompressed, in hex. May be
	// empty.
	SHA256 string

	// Signatures are who has to sign the module, which must be an image: each of the
	// requirements has to be met. Empty: a signature is not required.
	Signatures []signature.Requirement

	// Namespace is the namespace of the resource; empty if it is cluster-scoped.
	// Namespaces do not share cached content.
	Namespace string
	// Private allows a source at a loopback or private address. It is for
	// cluster-scoped resources.
	Private bool
}

// ConfigMap is one key of a ConfigMap that was read.
type ConfigMap struct {
	Name       string // for messages
	Key        string
	Data       map[string]string
	BinaryData map[string][]byte
}

// File is a file of a module.
type File = oci.File

// Fetched is a fetched module. It is shared with concurrent callers, so it must not
// be changed.
type Fetched struct {
	// Files are the files of the module, decompressed: one, or one or more for
	// Rego, sorted by name.
	Files []File
	// Digest is the sha256 of the module; see func Digest.
	Digest string
	// Pinned reports whether the source always gives the same module. Otherwise the
	// module must not be enforced.
	Pinned bool
	// Pin is what to write in the resource to pin it. Empty if it is pinned.
	Pin string
	// Origin is the origin of the module, for status messages. It contains no
	// secrets.
	Origin string
	// Signers are the trusted signers of the module, for status messages: one for each of the
	// source's Signatures.
	Signers []string
	// CacheErr is the error of caching the module. The module itself is valid.
	CacheErr error
}

// Config is the configuration of a Fetcher.
type Config struct {
	// CacheDir is the folder of the cache. Empty: no cache. It may be lost at any
	// time.
	CacheDir string
	// Limits are the limits of fetches. Zero fields mean the default.
	Limits Limits
	// Network has the rules for addresses, the proxy and additional certificates.
	// Its fields Private and PlainLoopback are ignored; Source determines them.
	Network egress.Config
}

// Fetcher fetches modules. Its methods may be called concurrently.
type Fetcher struct {
	limits  Limits
	cache   *cache
	flights flights
	slots   slots

	public, private *http.Client
}

// New returns a Fetcher. The error reports an invalid configuration.
func New(c Config) (*Fetcher, error) {
	if err := c.Limits.Validate(); err != nil {
		return nil, err
	}
	f := &Fetcher{limits: c.Limits.withDefaults()}
	f.slots.limits = f.limits
	f.cache = &cache{dir: c.CacheDir, maxBytes: f.limits.Cache}
	if c.CacheDir != "" {
		f.cache.dir = filepath.Clean(c.CacheDir)
	}
	var err error
	network := c.Network
	network.Redirects = f.limits.Redirects
	network.AllowPrivate, network.AllowLoopbackHTTP = false, false
	if f.public, err = egress.New(network); err != nil {
		return nil, fmt.Errorf("configure network: %w", err)
	}
	network.AllowPrivate, network.AllowLoopbackHTTP = true, true
	if f.private, err = egress.New(network); err != nil {
		return nil, fmt.Errorf("configure network: %w", err)
	}
	return f, nil
}

// Close closes idle connections.
func (f *Fetcher) Close() {
	f.public.CloseIdleConnections()
	f.private.CloseIdleConnections()
}

// Fetch returns the module. Concurrent calls for the same source share one
// download. The error is an *Error if the source or its server caused it, and the
// context's error when the context has ended.
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

// key is equal for sources that can share a fetch.
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
		return errorf(InvalidReference, "unknown language %q: use wasm or rego", s.Language)
	case given != 1:
		return errorf(InvalidReference, "the source has %d origins: use exactly one of inline, configMap, url and image", given)
	case s.Inline != "" && s.Language != Rego:
		return errorf(InvalidReference, "only Rego can be inline: use a ConfigMap, a URL or an image for WebAssembly")
	case s.SHA256 != "" && !isHexSum(s.SHA256):
		return errorf(InvalidReference, "%q is not a sha256: use 64 hex digits in lower case, as sha256sum prints them", s.SHA256)
	}
	return s.checkSigned()
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
