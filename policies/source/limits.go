package source

import (
	"cmp"
	"fmt"
	"time"
)

// Limits bound what a source may take. Zero means the default.
type Limits struct {
	Module    int64         // bytes of a module of WebAssembly, decompressed. Default: 64 MiB
	Rego      int64         // bytes of a file of Rego, decompressed. Default: 1 MiB
	Files     int           // of Rego, in one module. Default: 64
	Download  int64         // bytes that are downloaded of one module. Default: 64 MiB
	Unpacked  int64         // bytes of an image's layers, decompressed, of which all but the module is thrown away. Default: 256 MiB
	Entries   int           // files and folders in an image's layers. Default: 10,000
	Manifest  int64         // bytes of a manifest. Default: 1 MiB
	Layers    int           // of an image, and platforms of an index. Default: 32
	Redirects int           // that are followed, for each request. Default: 5
	Timeout   time.Duration // for all of it. Default: 1m
	Cache     int64         // bytes that are kept on disk. Default: 512 MiB

	// Of modules of namespaces in place of the above, where these are lower.
	NamespaceDownload int64         // Default: 16 MiB
	NamespaceTimeout  time.Duration // Default: 30s

	Fetches          int // at the same time, of modules of the cluster. Default: 4
	NamespaceFetches int // at the same time, of modules of all namespaces. Default: 8
	FetchesEach      int // at the same time, of each namespace, and from each server. Default: 2
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
	FetchesEach:       2,
}

// Validate refuses limits that make no sense.
func (l Limits) Validate() error {
	for name, n := range map[string]int64{
		"Module": l.Module, "Rego": l.Rego, "Files": int64(l.Files), "Download": l.Download, "Unpacked": l.Unpacked,
		"Entries": int64(l.Entries), "Manifest": l.Manifest, "Layers": int64(l.Layers), "Redirects": int64(l.Redirects),
		"Timeout": int64(l.Timeout), "Cache": l.Cache,
		"NamespaceDownload": l.NamespaceDownload, "NamespaceTimeout": int64(l.NamespaceTimeout),
		"Fetches": int64(l.Fetches), "NamespaceFetches": int64(l.NamespaceFetches), "FetchesEach": int64(l.FetchesEach),
	} {
		if n < 0 {
			return fmt.Errorf("limit %s: %d is below 0", name, n)
		}
	}
	return nil
}

func (l Limits) orDefault() Limits {
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
		FetchesEach:       cmp.Or(l.FetchesEach, defaults.FetchesEach),
	}
}

// download and timeout are what bounds one fetch.
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

// content is the most bytes that a file of a module may have.
func (l Limits) content(language Language) int64 {
	if language == Rego {
		return l.Rego
	}
	return l.Module
}

// files is how many files a module may have.
func (l Limits) files(language Language) int {
	if language == Rego {
		return l.Files
	}
	return 1
}
