package differential

import (
	"fmt"
	"math/rand"
	"slices"
)

// testFinalizer is a finalizer that the script itself removes.
const testFinalizer = "differential.gleaner.dev/hold"

// policies are the propagation policies of deletes; the empty one means none.
var policies = []string{"", "Background", "Background", "Foreground", "Foreground", "Foreground", "Orphan", "Orphan", "orphanDependents", "noOrphanDependents"}

// generator generates a script from a seed. Each object has one kind and one
// namespace in the whole script, so that it is recreated in the same place.
type generator struct {
	*rand.Rand
	objects    []step              // as first created
	pastOwners map[string][]string // all owners that each object has had
}

// generate returns the script of a seed.
func generate(seed int64) script {
	g := &generator{Rand: rand.New(rand.NewSource(seed)), pastOwners: map[string][]string{}}
	var s script
	for range 3 + g.Intn(6) {
		s = append(s, g.create())
	}
	for range 2 + g.Intn(6) {
		s = append(s, g.modify())
	}
	return s
}

func (g *generator) create() step {
	s := step{op: "create", object: string(rune('a' + len(g.objects))), kind: kinds[g.Intn(len(kinds))]}
	s.elsewhere = s.kind.namespaced && g.Intn(8) == 0
	s.owners = g.references(s)
	s.finalizers = g.finalizers()
	g.objects = append(g.objects, s)
	return s
}

// modify returns a step about an existing object.
func (g *generator) modify() step {
	o := g.objects[g.Intn(len(g.objects))]
	switch n := g.Intn(10); {
	case n < 5:
		return step{op: "delete", object: o.object, policy: policies[g.Intn(len(policies))]}
	case n < 7:
		return step{op: "own", object: o.object, owners: g.references(o)}
	case n < 8:
		return step{op: "finalizers", object: o.object} // none, which releases it
	case n < 9 && len(g.objects) < 12:
		return g.create()
	default:
		o.owners, o.finalizers = g.references(o), g.finalizers()
		return o // recreated, or refused because it exists
	}
}

// references returns references to existing objects. Two known differences are
// avoided (docs/differential.md): an owner that is referenced again, or
// differently (3.31), and one in a namespace that a cluster-scoped object
// references among others (3.4).
func (g *generator) references(of step) []reference {
	var refs []reference
	for range g.Intn(3) {
		if len(g.objects) == 0 {
			break
		}
		owner := g.objects[g.Intn(len(g.objects))]
		r := reference{object: owner.object, blocks: g.Intn(2) == 0}
		if g.Intn(6) == 0 {
			r.wrong = []string{"name", "kind", "uid", "version"}[g.Intn(4)]
		}
		if r.object == of.object || slices.Contains(g.pastOwners[of.object], r.object) {
			continue
		}
		g.pastOwners[of.object] = append(g.pastOwners[of.object], r.object)
		if owner.kind.namespaced && !of.kind.namespaced {
			return []reference{r}
		}
		refs = append(refs, r)
	}
	return refs
}

func (g *generator) finalizers() []string {
	switch g.Intn(12) {
	case 0, 1:
		return []string{testFinalizer}
	case 2:
		return []string{"orphan"}
	case 3:
		return []string{"foregroundDeletion"}
	case 4:
		return []string{testFinalizer, "foregroundDeletion"}
	default:
		return nil
	}
}

// without returns a script without one of its steps. References to an object
// that is no longer created are removed.
func (s script) without(i int) script {
	var smaller script
	made := map[string]bool{}
	for j, st := range s {
		if j == i {
			continue
		}
		if st.op != "create" && !made[st.object] {
			continue
		}
		made[st.object] = true
		st.owners = slices.DeleteFunc(slices.Clone(st.owners), func(r reference) bool { return !made[r.object] })
		smaller = append(smaller, st)
	}
	return smaller
}

// simpler returns simpler variants of s, the most promising first.
func (s script) simpler() []script {
	var all []script
	for i := len(s) - 1; i >= 0; i-- {
		all = append(all, s.without(i))
	}
	for i, st := range s {
		for j := range st.owners {
			changed := slices.Clone(s)
			changed[i].owners = slices.Delete(slices.Clone(st.owners), j, j+1)
			all = append(all, changed)
		}
		if len(st.finalizers) != 0 && st.op == "create" {
			changed := slices.Clone(s)
			changed[i].finalizers = nil
			all = append(all, changed)
		}
	}
	return all
}

func name(seed int64) string { return fmt.Sprintf("seed=%d", seed) }
