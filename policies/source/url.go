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

// fetchURL downloads a module. With a digest in the resource it is kept, so that
// it is downloaded once.
func (f *Fetcher) fetchURL(ctx context.Context, s Source) (Fetched, error) {
	u, err := parseURL(s.URL)
	if err != nil {
		return Fetched{}, err
	}
	from := shown(u)
	if s.SHA256 != "" {
		if data, ok := f.cache.get(s.Namespace, s.SHA256, f.limits.content(s.Language)); ok {
			return f.finishURL(s, from, data)
		}
	}
	turn := &turn{fetcher: f, source: s, host: u.Host}
	defer turn.end()
	data, err := f.download(ctx, turn, u)
	if err != nil {
		return Fetched{}, explain(ctx, from, err)
	}
	got, err := f.finishURL(s, from, data)
	if err == nil && s.SHA256 != "" {
		got.KeepErr = f.cache.put(s.Namespace, s.SHA256, got.Files[0].Data)
	}
	return got, err
}

func (f *Fetcher) finishURL(s Source, from string, data []byte) (Fetched, error) {
	file, err := f.open(s, from, data)
	if err != nil {
		return Fetched{}, err
	}
	return f.finish(s, from, "", []File{file})
}

func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, fault(BadReference, "the url makes no sense: use https://host/path")
	case u.User != nil:
		return nil, fault(BadReference, "the url has a user name or password in it, which would show up in logs: "+
			"put the module into a registry, which pull secrets are for")
	case u.Scheme != "https" || u.Hostname() == "":
		return nil, fault(BadReference, "the url is not one of HTTPS: use https://host/path")
	}
	return u, nil
}

// shown is a URL without what may be a signature.
func shown(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func (f *Fetcher) download(ctx context.Context, turn *turn, u *url.URL) ([]byte, error) {
	ctx, cancel, err := turn.online(ctx)
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
		return nil, &oci.StatusError{What: "download", Status: response.StatusCode}
	}
	limit := f.limits.download(turn.source)
	if response.ContentLength > limit {
		return nil, &oci.SizeError{What: "what is there", Limit: limit}
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	// A server that sees us hang up may end the body as if that were all of it.
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return nil, fmt.Errorf("download: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, &oci.SizeError{What: "what is there", Limit: limit}
	}
	return data, nil
}
