package record

import (
	"slices"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// sizeless is what a document has beside its parts of any length.
const sizeless = 512

// sizeOf is about how long an entry's transcripts are when they are written.
// What several rounds share counts for each.
func sizeOf(asked []Asked) int {
	size := 0
	for _, a := range asked {
		for _, e := range a.Exchanges {
			size += sizeless + len(e.Fault) + sizeOfRequest(e.Request) + sizeOfVerdict(e.Verdict)
		}
	}
	return size
}

func sizeOfRequest(r hostabi.Request) int {
	size := sizeOfObject(r.Object) + len(r.Policy.Settings) + len(r.State) + sizeless*len(r.Owners)
	for _, result := range r.Results {
		if result.Object != nil {
			size += sizeOfObject(*result.Object)
		}
		if result.List != nil {
			for _, item := range result.List.Items {
				size += sizeOfObject(item)
			}
		}
		if h := result.HTTP; h != nil {
			size += len(h.Body) + len(h.BodyBase64) + sizeOfHeaders(h.Headers)
		}
		if result.Error != nil {
			size += len(result.Error.Message)
		}
	}
	return size
}

func sizeOfObject(o hostabi.Object) int { return sizeless + len(o.Body) }

func sizeOfHeaders(headers map[string]string) int {
	size := 0
	for name, value := range headers {
		size += len(name) + len(value)
	}
	return size
}

func sizeOfVerdict(v hostabi.Verdict) int {
	size := len(v.State) + len(v.Reason)
	for _, i := range v.Intents {
		size += sizeless
		switch {
		case i.Create != nil:
			size += len(i.Create.Object)
		case i.Patch != nil:
			size += len(i.Patch.Patch)
		case i.HTTP != nil:
			size += len(i.HTTP.URL) + len(i.HTTP.Body) + sizeOfHeaders(i.HTTP.Headers)
		}
	}
	return size
}

// WithoutExchanges is the entry with no transcripts. What it shares with others
// is not changed.
func (e Entry) WithoutExchanges() Entry {
	e.Asked = slices.Clone(e.Asked)
	for i := range e.Asked {
		e.Asked[i].Exchanges = nil
	}
	return e
}

// Converses reports whether the entry has a transcript.
func (e Entry) Converses() bool {
	return slices.ContainsFunc(e.Asked, func(a Asked) bool { return len(a.Exchanges) != 0 })
}

// Transcribe gives an Asked its transcript, without secrets.
func (a *Asked) Transcribe(exchanges []policies.Exchange, bodies bool) {
	a.Exchanges, a.Replayable = Redact(exchanges, bodies)
	a.Replayable = a.Replayable && len(exchanges) != 0
}

// keepTranscripts notes that the entry at a place has transcripts, and makes room
// for them by dropping those of the oldest entries.
func (s *Store) keepTranscripts(at int) {
	size := sizeOf(s.entries[at].Asked)
	if size == 0 {
		return
	}
	s.transcripts = append(s.transcripts, transcripts{at, size})
	s.bytes += size
	for s.bytes > s.bounds.Transcripts {
		oldest := s.transcripts[0].at
		dropped := s.entries[oldest].WithoutExchanges()
		for i := range dropped.Asked {
			dropped.Asked[i].Replayable = false
		}
		dropped.ExchangesDropped = true
		s.entries[oldest] = dropped
		s.dropOldest()
	}
}

// dropOldest forgets that the oldest entry with transcripts has any.
func (s *Store) dropOldest() {
	s.bytes -= s.transcripts[0].size
	s.transcripts = s.transcripts[1:]
}
