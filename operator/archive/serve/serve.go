// Package serve serves the entries of an archive to clients that can't open its store: a page of
// headers at a time, and the body of one entry, as it is stored. A client sees only the entries
// of objects that it may get.
//
// It writes nothing and decrypts nothing. Authentication, and the permission to get the
// paths, are those of the debug endpoints.
package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// The paths.
const (
	HeadersPath = "/debug/gc/archive"
	BodyPath    = "/debug/gc/archive/body"
)

// Limits of one request. A page ends at the first that it reaches, and says where the next begins.
const (
	maxPage       = 1000            // headers in a page
	maxPageBytes  = 8 << 20         // of headers in a page, as JSON
	maxScanned    = 20_000          // headers that are read for a page, including those that are not shown
	maxPageTime   = 4 * time.Second // less than clients wait
	maxBodies     = 4               // concurrent requests for bodies, each of which is in memory
	maxBodyTime   = 8 * time.Second // less than clients wait
	maxFieldBytes = 1024            // of a value in a query
)

// A Source is what is served. All fields are required.
type Source struct {
	Archive    archive.Reader
	ReadAccess func(*http.Request) debug.ReadAccess // of Guard
}

// A Page is a response with headers, newest first.
type Page struct {
	Items []archive.Header `json:"items"`

	// Continue is the value of continue= for the next page. Empty: this is the last one. A page
	// may have no items and still not be the last one.
	Continue string `json:"continue,omitempty"`

	// Corrupt says that headers were corrupt, which are missing. Empty: none of this page were.
	Corrupt string `json:"corrupt,omitempty"`
}

// Handlers returns the handlers by path. The caller authenticates requests, with the filter of a
// debug.Guard.
func Handlers(s Source) map[string]http.Handler {
	h := &handler{Source: s, bodies: make(chan struct{}, maxBodies)}
	return map[string]http.Handler{HeadersPath: http.HandlerFunc(h.headers), BodyPath: http.HandlerFunc(h.body)}
}

type handler struct {
	Source
	bodies chan struct{} // one for each request for a body
}

// headers serves a page of headers. The parameters are those of a Query, and limit= and
// continue=.
func (h *handler) headers(w http.ResponseWriter, r *http.Request) {
	asked, err := parseRequest(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	page, err := h.page(r, asked)
	if err != nil {
		http.Error(w, fmt.Sprintf("read archive: %v", err), codeOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(page) // the client has disconnected
}

// page reads a page. Headers that were read before the time is up are a page, too.
func (h *handler) page(r *http.Request, asked request) (Page, error) {
	ctx, cancel := context.WithTimeout(r.Context(), maxPageTime)
	defer cancel()
	canRead := h.ReadAccess(r)
	page := Page{Items: []archive.Header{}}
	var last archive.Header
	scanned, size, more := 0, 0, false
	err := h.Archive.Headers(ctx, asked.query(), func(header archive.Header) bool {
		if asked.served(header) {
			return ctx.Err() == nil
		}
		if more = scanned == maxScanned || len(page.Items) == asked.limit || size >= maxPageBytes || ctx.Err() != nil; more {
			return false
		}
		scanned, last = scanned+1, header
		if canRead(objectOf(header.Object)) {
			page.Items = append(page.Items, redact(header, canRead))
			size += sizeOf(header)
		}
		return true
	})
	switch {
	case scanned > 0 && (more || ctx.Err() != nil):
		page.Continue = positionOf(last)
	case err == nil && ctx.Err() != nil:
		err = ctx.Err()
	}
	switch {
	case errors.Is(err, archive.ErrCorrupt):
		page.Corrupt, err = err.Error(), nil
	case page.Continue != "" && ctx.Err() != nil:
		err = nil // the time was up
	}
	return page, err
}

func objectOf(o archive.Reference) record.Object {
	return record.Object{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}

// redact returns a header without the message of the decision, which may name owners, if the client
// may not get all of them. The object itself names its owners.
func redact(h archive.Header, canRead debug.ReadAccess) archive.Header {
	for _, owner := range h.Owners {
		if !canRead(objectOf(owner)) {
			h.Cause.Message = ""
		}
	}
	return h
}

func sizeOf(h archive.Header) int {
	data, err := json.Marshal(h)
	if err != nil {
		return maxPageBytes
	}
	return len(data)
}

// body serves the body of an entry by its uid=, time= and id=. Whether the client may get the object
// is decided by the header that is stored.
func (h *handler) body(w http.ResponseWriter, r *http.Request) {
	at, err := parseEntry(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxBodyTime)
	defer cancel()
	select {
	case h.bodies <- struct{}{}:
		defer func() { <-h.bodies }()
	case <-ctx.Done():
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Too many requests: try again later", http.StatusTooManyRequests)
		return
	}
	header, err := h.find(ctx, at)
	if err == nil && !h.ReadAccess(r)(objectOf(header.Object)) {
		err = archive.ErrNotFound
	}
	var body []byte
	if err == nil {
		body, err = h.Archive.Body(ctx, header)
	}
	switch {
	case errors.Is(err, archive.ErrNotFound):
		http.Error(w, fmt.Sprintf("no entry %q of the object with UID %q in the archive, or no permission to get the object", at.id, at.uid), http.StatusNotFound)
	case err != nil:
		http.Error(w, fmt.Sprintf("read entry %q: %v", at.id, err), codeOf(err))
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body) // the client has disconnected
	}
}

// find returns the header of an entry.
func (h *handler) find(ctx context.Context, at entry) (archive.Header, error) {
	var found archive.Header
	err := h.Archive.Headers(ctx, archive.Query{UID: at.uid, Since: at.time, Before: at.time.Add(1)}, func(header archive.Header) bool {
		if header.ID == at.id && header.Object.UID == at.uid {
			found = header
		}
		return found.ID == ""
	})
	if err == nil && found.ID == "" {
		err = archive.ErrNotFound
	}
	return found, err
}

// codeOf returns the status code for an error of the store.
func codeOf(err error) int {
	switch {
	case errors.Is(err, archive.ErrCorrupt):
		return http.StatusUnprocessableEntity
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}
