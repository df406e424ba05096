// Package selection has the results of label selectors for an object, in a form that is small
// enough to be kept for every object.
//
// Labels are not kept. A result says which selectors it is for, so that after a change of the
// selectors it counts as unknown, and never as a result of other ones.
package selection

import (
	"crypto/sha256"
	"maps"
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
	apiselection "k8s.io/apimachinery/pkg/selection"
)

// Selection says which selectors of a List match an object. The zero Selection says nothing.
// Selections that are equal take no memory of their own.
type Selection struct{ result unique.Handle[result] }

type result struct {
	list    digest
	matches string // one bit for each selector
}

// digest identifies a list of selectors by its content.
type digest [sha256.Size]byte

// IsEmpty reports whether the Selection says nothing.
func (s Selection) IsEmpty() bool { return s == Selection{} }

// Equal reports whether both say the same, for the same selectors.
func (s Selection) Equal(other Selection) bool { return s == other }

// List is a list of different selectors. It is immutable. A nil List is empty.
type List struct {
	digest    digest
	selectors []labels.Selector
	positions map[string]int

	// A selector that requires a label is found by it. Few objects have many labels, and policies
	// may have a thousand selectors.
	byValue map[label][]int
	byKey   map[string][]int // of those that require it with any value, or a range of them
	others  []int            // those that require no label
}

// The operators that require a label with one of some values, and with others.
var (
	withValue = []apiselection.Operator{apiselection.In, apiselection.Equals, apiselection.DoubleEquals}
	withKey   = []apiselection.Operator{apiselection.Exists, apiselection.GreaterThan, apiselection.LessThan}
)

type label struct{ key, value string }

// NewList returns the List of selectors, by their text. The same texts give Lists for which the
// same Selections count.
func NewList(byText map[string]labels.Selector) *List {
	l := &List{positions: make(map[string]int, len(byText)), byValue: map[label][]int{}, byKey: map[string][]int{}}
	hash := sha256.New()
	for i, text := range slices.Sorted(maps.Keys(byText)) {
		l.positions[text] = i
		l.selectors = append(l.selectors, byText[text])
		l.index(i)
		hash.Write([]byte(text))
		hash.Write([]byte{0})
	}
	hash.Sum(l.digest[:0])
	return l
}

// index has a selector found by a label that it requires.
func (l *List) index(position int) {
	requirements, selectable := l.selectors[position].Requirements()
	if !selectable {
		return // it matches nothing
	}
	of := func(operators []apiselection.Operator) int {
		return slices.IndexFunc(requirements, func(r labels.Requirement) bool { return slices.Contains(operators, r.Operator()) })
	}
	if i := of(withValue); i >= 0 {
		for value := range requirements[i].Values() {
			at := label{requirements[i].Key(), value}
			l.byValue[at] = append(l.byValue[at], position)
		}
		return
	}
	if i := of(withKey); i >= 0 {
		l.byKey[requirements[i].Key()] = append(l.byKey[requirements[i].Key()], position)
		return
	}
	l.others = append(l.others, position)
}

// IsEmpty reports whether the List has no selectors.
func (l *List) IsEmpty() bool { return l == nil || len(l.selectors) == 0 }

// Equal reports whether the same Selections count for both.
func (l *List) Equal(other *List) bool {
	if l.IsEmpty() || other.IsEmpty() {
		return l.IsEmpty() && other.IsEmpty()
	}
	return l.digest == other.digest
}

// Position returns the position of a selector by its text. It returns false if the List does not
// have it.
func (l *List) Position(text string) (int, bool) {
	if l == nil {
		return 0, false
	}
	i, ok := l.positions[text]
	return i, ok
}

// Evaluate evaluates all selectors on an object's labels.
func (l *List) Evaluate(set labels.Set) Selection {
	if l.IsEmpty() {
		return Selection{}
	}
	matches := make([]byte, (len(l.selectors)+7)/8)
	evaluate := func(positions []int) {
		for _, i := range positions {
			if l.selectors[i].Matches(set) {
				matches[i/8] |= 1 << (i % 8)
			}
		}
	}
	evaluate(l.others)
	for key, value := range set {
		evaluate(l.byValue[label{key, value}])
		evaluate(l.byKey[key])
	}
	return Selection{unique.Make(result{l.digest, string(matches)})}
}

// IsKnown reports whether a Selection is a result of this List.
func (l *List) IsKnown(s Selection) bool {
	return !l.IsEmpty() && !s.IsEmpty() && s.result.Value().list == l.digest
}

// Results returns what a Selection says. It returns false if that is about other selectors.
func (l *List) Results(s Selection) (Results, bool) {
	if !l.IsKnown(s) {
		return "", false
	}
	return Results(s.result.Value().matches), true
}

// Results has one bit for each selector of a List.
type Results string

// Matches reports whether the selector at a position of the List matches the object.
func (r Results) Matches(position int) bool { return r[position/8]&(1<<(position%8)) != 0 }
