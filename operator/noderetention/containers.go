package noderetention

import (
	"time"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

// lastState says why the last container of a Pod that runs stays.
const lastState = "the kubelet reads from it whether to start the container again"

// PlanContainers evaluates policies about the exited containers of a node, in the order of Images.Plan. Containers that run, or
// are about to, are no candidates. The last one of a container of a Pod that runs counts, and stays: the kubelet decides by it.
func PlanContainers(n Node, policies []Policy, now time.Time) []Result {
	var results []Result
	gone, last := map[string]bool{}, n.last()
	for _, p := range inOrder(policies) {
		if p.Containers == nil {
			continue
		}
		var candidates []retain.Candidate
		names := map[string]string{}
		for _, c := range n.Containers {
			if !c.Exited || gone[c.ID] {
				continue
			}
			candidate := retain.Candidate{
				ID: c.ID, Group: c.Pod.UID + "/" + c.Name, Use: retain.Unused, Created: c.Created, Protected: tooYoung(c, p, policies, now),
			}
			if last[c.ID] {
				candidate.Protected, candidate.Counted = lastState, true
			}
			candidates, names[c.ID] = append(candidates, candidate), c.Pod.Namespace+"/"+c.Pod.Name+"/"+c.Name
		}
		plan := retain.Evaluate(retain.Input{Candidates: candidates, Now: now, Rule: retain.Rule{
			MinAge: p.Containers.MinAge, MinAgeFrom: retain.ByCreation, Order: retain.ByCreation, Counting: retain.CountRemovable,
			KeepLast: p.Containers.MaxPerContainer, MaxTotal: p.Containers.MaxTotal,
		}})
		result := newResult(p, plan, func(at int) Item {
			c := candidates[at]
			return Item{ID: c.ID, Name: names[c.ID], Created: c.Created}
		})
		if p.Enforce {
			for _, removal := range result.Removals {
				gone[removal.ID] = true
			}
		}
		results = append(results, result)
	}
	return results
}

// last returns the newest container of each container of a Pod that is not known to have ended.
func (n Node) last() map[string]bool {
	type key struct{ pod, name string }
	newest := map[key]Container{}
	for _, c := range n.Containers {
		k := key{c.Pod.UID, c.Name}
		if known, ok := newest[k]; !ok || c.Created.After(known.Created) {
			newest[k] = c
		}
	}
	last, ended := map[string]bool{}, n.ended()
	for k, c := range newest {
		if !ended[k.pod] {
			last[c.ID] = true
		}
	}
	return last
}

// tooYoung returns which other policy that is enforced keeps a container because it is too young; "": none.
func tooYoung(c Container, evaluated Policy, policies []Policy, now time.Time) string {
	for _, p := range policies {
		if p.Enforce && p.Name != evaluated.Name && p.Containers != nil && now.Before(c.Created.Add(p.Containers.MinAge)) {
			return p.Name
		}
	}
	return ""
}
