package finalize

import (
	"strconv"

	"github.com/gleaner-dev/gleaner/hostabi"
)

const (
	// defaultPage allows one intent for each object of a page in a round.
	defaultPage = 50

	// An attempt starts no new page after this many rounds or bytes of lists:
	// results accumulate until it ends, in a request that is decoded in each round.
	pageRounds = 8
	pageBytes  = 512 << 10
)

// Each runs steps for each object of a list, page by page: 50 to a page, unless the
// intent has a limit. The steps for the objects of one page are independent, as in
// [Steps.All]; their ids must be unique within one object only. The run continues
// when all pages are finished. If objects are large, a limit keeps a page within
// the fuel of a call: 1 MiB of objects is well within the default.
//
// A long list takes several attempts; each starts at the page that the previous one
// did not finish. So steps before Each may be repeated, and so may those for some
// objects. After Wait, a finished list is listed again: a list of deleted objects
// is empty then; put other steps into [Steps.Once].
func (s *Steps) Each(id string, in hostabi.ListIntent, f func(hostabi.Object)) {
	if s.stopped() {
		return
	}
	if in.Limit == 0 {
		in.Limit = defaultPage
	}
	name := identifier(s.scope + id)
	in.Continue = s.saved.Pages[name]
	for page, bytes := 1, 0; ; page++ {
		s.saved.setPage(name, in.Continue)
		list, ok := s.page(name, id+"."+strconv.Itoa(page), in)
		if !ok {
			return
		}
		s.forEach(id, page, list.Items, f)
		if s.Stopped() {
			return
		}
		if list.Continue == "" {
			s.saved.setPage(name, "")
			return
		}
		for _, o := range list.Items {
			bytes += len(o.Body)
		}
		in.Continue = list.Continue
		_, begun := s.req.Results[identifier(s.prefix+id+"."+strconv.Itoa(page+1))]
		if !begun && (s.req.Round > pageRounds || bytes > pageBytes) {
			s.saved.setPage(name, in.Continue)
			s.Wait(nextAttemptDelay, "more pages of "+in.Kind)
			return
		}
	}
}

// page lists a page. An expired token is discarded.
func (s *Steps) page(name, id string, in hostabi.ListIntent) (hostabi.ListResult, bool) {
	intent := hostabi.Intent{List: &in}
	result, ok := s.request(id, intent)
	switch {
	case !ok:
		return hostabi.ListResult{}, false
	case result.Error != nil && result.Error.Reason == hostabi.ErrorExpired:
		s.saved.setPage(name, "")
		s.Wait(nextAttemptDelay, "the continue token for "+in.Kind+" has expired: listing again")
		return hostabi.ListResult{}, false
	case result.Error != nil:
		s.handleError(intent, *result.Error)
		return hostabi.ListResult{}, false
	case result.List == nil:
		s.Wait(0, describe(intent)+": the result has no list")
		return hostabi.ListResult{}, false
	}
	return *result.List, true
}

// forEach runs the steps for the objects of a page.
func (s *Steps) forEach(id string, page int, items []hostabi.Object, f func(hostabi.Object)) {
	prefix, scope := s.prefix, s.scope
	branches := make([]func(), 0, len(items))
	for _, item := range items {
		branches = append(branches, func() {
			s.prefix = prefix + id + "." + strconv.Itoa(page) + "." + item.Metadata.UID + "."
			s.scope = scope + id + "." + item.Metadata.UID + "."
			f(item)
		})
	}
	s.All(branches...)
	s.prefix, s.scope = prefix, scope
}
