package finalize

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/intents"
)

// answerIn is how soon an intent is carried out, if all is well. One that takes longer
// is reported while it is in flight.
const answerIn = 5 * time.Second

// flight is an intent that is being carried out. The zero flight is none.
type flight struct {
	what  string
	since time.Time
}

// stuckFor reports an object whose module's intent is not answered.
func (f flight) stuckFor(t *track, now time.Time) (Stuck, bool) {
	if f.what == "" || now.Sub(f.since) < answerIn {
		return Stuck{}, false
	}
	s := Stuck{
		Object: t.object, Reason: noAnswer, Since: f.since, Deadline: t.deadline,
		Message: fmt.Sprintf("%s: no answer since %s", f.what, f.since.UTC().Format(time.RFC3339)),
	}
	if _, is := stuck[t.reason]; is { // before that, too
		s.Since = t.since
		s.Message += "; before that: " + t.message
	}
	return s, true
}

// do carries out an intent. While it takes long, the object is reported as stuck.
func (v *visitor) do(ctx context.Context, on intents.Behalf, intent hostabi.Intent) hostabi.Result {
	v.fly(flight{intents.Describe(intent), v.Now()})
	late := time.AfterFunc(answerIn, v.Changed)
	defer func() {
		v.fly(flight{})
		if !late.Stop() {
			v.Changed()
		}
	}()
	return v.Intents.Do(ctx, on, intent)
}

func (v *visitor) fly(f flight) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, ok := v.tracks[v.key.uid]
	if !ok {
		return
	}
	t.flight = f
	t.object, t.deadline, t.deleted = v.track.object, v.track.deadline, v.track.deleted
	t.object.Owners, t.object.Finalizers = nil, nil
}

// obstacle names what the module asked for last and did not get, of that which it can't
// go on without: errors that are part of its work, such as NotFound, are none. "" if there
// is nothing.
func (n Note) obstacle() string {
	last := map[string]Carried{}
	for _, c := range n.Intents {
		last[c.Intent.ID] = c
	}
	for _, c := range n.Intents {
		if why := last[c.Intent.ID].refused(); why != "" && c.Intent.Event == nil {
			return intents.Describe(c.Intent) + ": " + why
		}
	}
	return ""
}

// refused is why an intent came to nothing.
func (c Carried) refused() string {
	if e := c.Result.Error; e != nil {
		switch e.Reason {
		case hostabi.ErrorNotFound, hostabi.ErrorAlreadyExists, hostabi.ErrorConflict, hostabi.ErrorExpired:
			return ""
		default:
			return fmt.Sprintf("%s (%s)", e.Reason, e.Message)
		}
	}
	if c.Result.HTTP == nil {
		return ""
	}
	switch status := c.Result.HTTP.Status; {
	case status >= http.StatusInternalServerError, status == http.StatusUnauthorized, status == http.StatusForbidden,
		status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return cmp.Or(http.StatusText(status), "status") + fmt.Sprintf(" (%d)", status)
	default:
		return ""
	}
}

// waited is why a module waits, and for people what for.
func (n Note) waited() (Reason, string) {
	obstacle := n.obstacle()
	switch {
	case obstacle == "":
		return Waits, n.Message
	case n.Message == "":
		return Blocked, obstacle
	default:
		return Blocked, n.Message + ": " + obstacle
	}
}
