package retain

// Named is the plan of one rule, with the name of its policy. The positions in the plan are those of all candidates.
type Named struct {
	Name string
	Plan Plan
}

// Combine combines the plans of rules that may select the same candidates. What any rule keeps stays, whatever the others say
// (P-25); keptBy are the names of those that do, for each candidate that another rule would remove. The removals have the order
// and the reasons of the first plan.
func Combine(plans ...Named) (removals []Decision, keptBy map[int][]string) {
	keptBy = map[int][]string{}
	kept := map[int][]string{}
	for _, p := range plans {
		for _, d := range p.Plan.Kept {
			kept[d.Candidate] = append(kept[d.Candidate], p.Name)
		}
	}
	decided := map[int]bool{}
	for _, p := range plans {
		for _, d := range p.Plan.Removals {
			if decided[d.Candidate] {
				continue
			}
			decided[d.Candidate] = true
			if by := kept[d.Candidate]; len(by) != 0 {
				keptBy[d.Candidate] = by
			} else {
				removals = append(removals, d)
			}
		}
	}
	return removals, keptBy
}
