package finalize

import (
	"strconv"

	"github.com/gleaner-dev/gleaner/hostabi"
)

const (
	// defaultPage leaves each object of a page an intent in one round.
	defaultPage = 50

	// An attempt begins no page after so many rounds or bytes of lists: results pile
	// up until it ends, in a request that is read anew each round.
	pageRounds = 8
	pageBytes  = 512 << 10
)

// Each takes steps for each object of a list, page by page: 50 to a page, unless
// the intent has a limit. Those for the objects of one page do not wait for each
// other, as in [Steps.All], and the ids in them need to be different for one object only. The run
// goes on when all pages are through. Where objects are large, a limit keeps a page
// within the fuel of a call: at the default, 1 MiB of objects is well within.
//
// A long list takes several attempts, of which a later one begins at the page that the one
// before it did not finish. So steps before Each may be taken again, and so may
// those for some objects. After Wait, a list that was through is listed again: that of what was
// deleted is empty then, and others go into [Steps.Once].
func (s *Steps) Each(id string, in hostabi.ListIntent, f func(hostabi.Object)) {
	if s.stopped() {
		return
	}
	if in.Limit == 0 {
		in.Limit = defaultPage
	}
	name := identifier(s.scope + id)
	in.Continue = s.memory.Pages[name]
	for page, bytes := 1, 0; ; page++ {
		s.memory.goOn(name, in.Continue)
		list, ok := s.page(name, id+"."+strconv.Itoa(page), in)
		if !ok {
			return
		}
		s.forEach(id, page, list.Items, f)
		if s.Stopped() {
			return
		}
		if list.Continue == "" {
			s.memory.goOn(name, "")
			return
		}
		for _, o := range list.Items {
			bytes += len(o.Body)
		}
		in.Continue = list.Continue
		_, begun := s.request.Results[identifier(s.prefix+id+"."+strconv.Itoa(page+1))]
		if !begun && (s.request.Round > pageRounds || bytes > pageBytes) {
			s.memory.goOn(name, in.Continue)
			s.Wait(soon, "there are more pages of "+in.Kind)
			return
		}
	}
}

// page reads a page. A token that has become too old is forgotten.
func (s *Steps) page(name, id string, in hostabi.ListIntent) (hostabi.ListResult, bool) {
	intent := hostabi.Intent{List: &in}
	result, ok := s.ask(id, intent)
	switch {
	case !ok:
		return hostabi.ListResult{}, false
	case result.Error != nil && result.Error.Reason == hostabi.ErrorExpired:
		s.memory.goOn(name, "")
		s.Wait(soon, "the list of "+in.Kind+" has changed too much: it begins anew")
		return hostabi.ListResult{}, false
	case result.Error != nil:
		s.trouble(intent, *result.Error)
		return hostabi.ListResult{}, false
	case result.List == nil:
		s.Wait(0, describe(intent)+": the result has no list")
		return hostabi.ListResult{}, false
	}
	return *result.List, true
}

// forEach takes the steps for the objects of a page.
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
