package source

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/gleaner-dev/gleaner/policies/source/oci"
)

// fetchURL downloads a module. If the resource has a digest, the module is cached.
func (f *Fetcher) fetchURL(ctx context.Context, s Source) (Fetched, error) {
	u, err := parseURL(s.URL)
	if err != nil {
		return Fetched{}, err
	}
	from := redactURL(u)
	if s.SHA256 != "" {
		if data, ok := f.cache.get(s.Namespace, s.SHA256, f.limits.content(s.Language)); ok {
			return f.verifyURL(s, from, data)
		}
	}
	turn := &downloadSlot{fetcher: f, source: s, host: u.Host}
	defer turn.release()
	data, err := f.download(ctx, turn, u)
	if err != nil {
		return Fetched{}, explain(ctx, from, err)
	}
	got, err := f.verifyURL(s, from, data)
	if err == nil && s.SHA256 != "" {
		got.CacheErr = f.cache.put(s.Namespace, s.SHA256, got.Files[0].Data)
	}
	return got, err
}

func (f *Fetcher) verifyURL(s Source, from string, data []byte) (Fetched, error) {
	file, err := f.decompress(s, from, data)
	if err != nil {
		return Fetched{}, err
	}
	return f.verify(s, from, "", []File{file})
}

func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, errorf(InvalidReference, "the url is invalid: use https://host/path")
	case u.User != nil:
		return nil, errorf(InvalidReference, "the url contains a user name or password, which would appear in logs: "+
			"use a registry with a pull secret")
	case u.Scheme != "https" || u.Hostname() == "":
		return nil, errorf(InvalidReference, "the url does not use HTTPS: use https://host/path")
	}
	return u, nil
}

// redactURL returns a URL without its query, which may contain a signature.
func redactURL(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func (f *Fetcher) download(ctx context.Context, turn *downloadSlot, u *url.URL) ([]byte, error) {
	ctx, cancel, err := turn.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "gleaner")
	response, err := f.client(turn.source).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, &oci.StatusError{Operation: "download", Status: response.StatusCode}
	}
	limit := f.limits.download(turn.source)
	if response.ContentLength > limit {
		return nil, &oci.SizeError{Content: "the content", Limit: limit}
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	// When the client hangs up, a server may end the body as if it were complete.
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return nil, fmt.Errorf("download: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, &oci.SizeError{Content: "the content", Limit: limit}
	}
	return data, nil
}
