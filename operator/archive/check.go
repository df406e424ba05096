package archive

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxField is the maximum length of each coordinate and UID, in bytes. Those of Kubernetes are
// shorter, and index keys are made of them.
const maxField = 512

// Validate reports whether a store may keep an entry: its body has the digest and size of its
// header, its ID is of its time, and nothing is above the limits. The error is ErrTooLarge for
// what is above one.
func (e Entry) Validate() error {
	fail := func(err error) error { return fmt.Errorf("check entry of %s: %w", shorten(e.Object.String()), err) }
	if err := checkID(e.ID, e.Time); err != nil {
		return fail(err)
	}
	if e.Object.UID == "" || e.Object.Kind == "" || e.Object.Name == "" {
		return fail(errors.New("it has no kind, name or UID"))
	}
	r := e.Object
	for _, field := range []string{r.APIVersion, r.Kind, r.Namespace, r.Name, string(r.UID), string(e.Cause.Root)} {
		if len(field) > maxField {
			return fail(fmt.Errorf("%d bytes of %q, and the maximum is %d: %w", len(field), shorten(field), maxField, ErrTooLarge))
		}
	}
	if len(e.Body) > MaxBodyBytes {
		return fail(fmt.Errorf("%d bytes, and the maximum is %d: %w", len(e.Body), MaxBodyBytes, ErrTooLarge))
	}
	header, err := json.Marshal(e.Header)
	if err != nil {
		return fail(fmt.Errorf("encode header: %w", err))
	}
	if len(header) > MaxHeaderBytes {
		return fail(fmt.Errorf("%d bytes of header, and the maximum is %d: %w", len(header), MaxHeaderBytes, ErrTooLarge))
	}
	if err := VerifyBody(e.Header, e.Body); err != nil {
		return fail(err)
	}
	return nil
}

// Validate reports whether a store may keep a record.
func (r Record) Validate() error {
	if _, err := idTime(r.Time); err != nil {
		return fmt.Errorf("check record: %w", err)
	}
	if len(r.JSON) > MaxRecordBytes || len(r.UID) > maxField {
		return fmt.Errorf("check record of %s: %d bytes, and the maximum is %d: %w", shorten(string(r.UID)), len(r.JSON), MaxRecordBytes, ErrTooLarge)
	}
	return nil
}

// VerifyBody reports whether a body is the one that the header describes. Otherwise the error
// is ErrCorrupt.
func VerifyBody(h Header, body []byte) error {
	if int64(len(body)) != h.Size {
		return fmt.Errorf("%w: the body has %d bytes, and the header says %d", ErrCorrupt, len(body), h.Size)
	}
	if got := DigestOf(body); got != h.Content {
		return fmt.Errorf("%w: the body has SHA-256 %s, and the header says %s", ErrCorrupt, got, shorten(string(h.Content)))
	}
	return nil
}

// Matches reports whether a query selects an entry.
func (q Query) Matches(h Header) bool {
	gv, _ := schema.ParseGroupVersion(h.Object.APIVersion) // of what cannot be parsed, the group is ""
	switch {
	case q.UID != "" && q.UID != h.Object.UID,
		q.Root != "" && q.Root != h.Cause.Root,
		q.Group != nil && *q.Group != gv.Group,
		q.Kind != "" && q.Kind != h.Object.Kind,
		q.Namespace != nil && *q.Namespace != h.Object.Namespace,
		q.Name != "" && q.Name != h.Object.Name,
		!q.Since.IsZero() && h.Time.Before(q.Since),
		!q.Before.IsZero() && !h.Time.Before(q.Before):
		return false
	}
	return true
}
