package record

import (
	"slices"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// baseSize is the assumed size in bytes of a document's parts of fixed length.
const baseSize = 512

// sizeOf returns the approximate size of an entry's transcripts as JSON. Objects that
// several rounds share are counted for each.
func sizeOf(evaluations []Evaluation) int {
	size := 0
	for _, a := range evaluations {
		for _, e := range a.Exchanges {
			size += baseSize + len(e.Fault) + sizeOfRequest(e.Request) + sizeOfVerdict(e.Verdict)
		}
	}
	return size
}

func sizeOfRequest(r hostabi.Request) int {
	size := sizeOfObject(r.Object) + len(r.Policy.Settings) + len(r.State) + baseSize*len(r.Owners)
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

func sizeOfObject(o hostabi.Object) int { return baseSize + len(o.Body) }

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
		size += baseSize
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

// WithoutExchanges returns a copy of the entry without transcripts, as clients get it that do not
// need them.
func (e Entry) WithoutExchanges() Entry {
	e.Evaluations = slices.Clone(e.Evaluations)
	for i := range e.Evaluations {
		e.Evaluations[i].Exchanges = nil
	}
	return e
}

// WithoutTranscript returns a copy of the entry whose transcripts were dropped to save space, so
// that the decision can't be replayed.
func (e Entry) WithoutTranscript() Entry {
	if !e.HasTranscript() {
		return e
	}
	e = e.WithoutExchanges()
	for i := range e.Evaluations {
		e.Evaluations[i].Replayable = false
	}
	e.ExchangesDropped = true
	return e
}

// TranscriptSize returns the approximate memory of the entry's transcripts, in bytes.
func (e Entry) TranscriptSize() int { return sizeOf(e.Evaluations) }

// HasTranscript reports whether the entry has a transcript.
func (e Entry) HasTranscript() bool {
	return slices.ContainsFunc(e.Evaluations, func(a Evaluation) bool { return len(a.Exchanges) != 0 })
}

// SetExchanges sets the transcript of an evaluation, redacted unless bodies is set.
func (a *Evaluation) SetExchanges(exchanges []policies.Exchange, bodies bool) {
	a.Exchanges, a.Replayable = Redact(exchanges, bodies)
	a.Replayable = a.Replayable && len(exchanges) != 0
}

// accountTranscripts accounts for the transcripts of an entry, and evicts the oldest ones
// beyond the limit.
func (s *Store) accountTranscripts(at int) {
	size := s.entries[at].TranscriptSize()
	if size == 0 {
		return
	}
	s.transcriptSizes = append(s.transcriptSizes, transcriptSize{at, size})
	s.transcriptBytes += size
	for s.transcriptBytes > s.limits.MaxTranscriptBytes {
		oldest := s.transcriptSizes[0].index
		s.entries[oldest] = s.entries[oldest].WithoutTranscript()
		s.removeOldestTranscript()
	}
}

// removeOldestTranscript removes the oldest transcripts from the accounting.
func (s *Store) removeOldestTranscript() {
	s.transcriptBytes -= s.transcriptSizes[0].bytes
	s.transcriptSizes = s.transcriptSizes[1:]
}
