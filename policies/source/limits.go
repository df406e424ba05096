package source

import (
	"cmp"
	"fmt"
	"time"
)

// Limits bound the size and duration of fetches. Zero means the default.
type Limits struct {
	Module    int64         // bytes of a WebAssembly module, decompressed. Default: 64 MiB
	Rego      int64         // bytes of a Rego file, decompressed. Default: 1 MiB
	Files     int           // Rego files in one module. Default: 64
	Download  int64         // bytes downloaded for one module. Default: 64 MiB
	Unpacked  int64         // bytes of an image's layers, decompressed. Default: 256 MiB
	Entries   int           // files and folders in an image's layers. Default: 10,000
	Manifest  int64         // bytes of a manifest. Default: 1 MiB
	Layers    int           // of an image, and platforms of an index. Default: 32
	Redirects int           // redirects followed for each request. Default: 5
	Timeout   time.Duration // for the whole fetch. Default: 1m
	Cache     int64         // bytes on disk. Default: 512 MiB

	// Limits for modules in namespaces, if they are lower than the above.
	NamespaceDownload int64         // Default: 16 MiB
	NamespaceTimeout  time.Duration // Default: 30s

	Fetches          int // concurrent, for cluster-scoped modules. Default: 4
	NamespaceFetches int // concurrent, for modules in namespaces. Default: 8
	FetchesPerScope  int // concurrent, for each namespace and for each server. Default: 2
}

var defaults = Limits{
	Module:    64 << 20,
	Rego:      1 << 20,
	Files:     64,
	Download:  64 << 20,
	Unpacked:  256 << 20,
	Entries:   10_000,
	Manifest:  1 << 20,
	Layers:    32,
	Redirects: 5,
	Timeout:   time.Minute,
	Cache:     512 << 20,

	NamespaceDownload: 16 << 20,
	NamespaceTimeout:  30 * time.Second,
	Fetches:           4,
	NamespaceFetches:  8,
	FetchesPerScope:   2,
}

// Validate reports invalid limits.
func (l Limits) Validate() error {
	for name, n := range map[string]int64{
		"Module": l.Module, "Rego": l.Rego, "Files": int64(l.Files), "Download": l.Download, "Unpacked": l.Unpacked,
		"Entries": int64(l.Entries), "Manifest": l.Manifest, "Layers": int64(l.Layers), "Redirects": int64(l.Redirects),
		"Timeout": int64(l.Timeout), "Cache": l.Cache,
		"NamespaceDownload": l.NamespaceDownload, "NamespaceTimeout": int64(l.NamespaceTimeout),
		"Fetches": int64(l.Fetches), "NamespaceFetches": int64(l.NamespaceFetches), "FetchesEach": int64(l.FetchesPerScope),
	} {
		if n < 0 {
			return fmt.Errorf("limit %s: %d is below 0", name, n)
		}
	}
	return nil
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Module:    cmp.Or(l.Module, defaults.Module),
		Rego:      cmp.Or(l.Rego, defaults.Rego),
		Files:     cmp.Or(l.Files, defaults.Files),
		Download:  cmp.Or(l.Download, defaults.Download),
		Unpacked:  cmp.Or(l.Unpacked, defaults.Unpacked),
		Entries:   cmp.Or(l.Entries, defaults.Entries),
		Manifest:  cmp.Or(l.Manifest, defaults.Manifest),
		Layers:    cmp.Or(l.Layers, defaults.Layers),
		Redirects: cmp.Or(l.Redirects, defaults.Redirects),
		Timeout:   cmp.Or(l.Timeout, defaults.Timeout),
		Cache:     cmp.Or(l.Cache, defaults.Cache),

		NamespaceDownload: cmp.Or(l.NamespaceDownload, defaults.NamespaceDownload),
		NamespaceTimeout:  cmp.Or(l.NamespaceTimeout, defaults.NamespaceTimeout),
		Fetches:           cmp.Or(l.Fetches, defaults.Fetches),
		NamespaceFetches:  cmp.Or(l.NamespaceFetches, defaults.NamespaceFetches),
		FetchesPerScope:   cmp.Or(l.FetchesPerScope, defaults.FetchesPerScope),
	}
}

// download and timeout are the limits of one fetch.
func (l Limits) download(s Source) int64 {
	if s.Namespace != "" {
		return min(l.Download, l.NamespaceDownload)
	}
	return l.Download
}

func (l Limits) timeout(s Source) time.Duration {
	if s.Namespace != "" {
		return min(l.Timeout, l.NamespaceTimeout)
	}
	return l.Timeout
}

// content is the maximum size of a file of a module, in bytes.
func (l Limits) content(language Language) int64 {
	if language == Rego {
		return l.Rego
	}
	return l.Module
}

// files is the maximum number of files of a module.
func (l Limits) files(language Language) int {
	if language == Rego {
		return l.Files
	}
	return 1
}
