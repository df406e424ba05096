package ownership

import (
	"strings"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/decide"
)

// State returns whether an object is missing or being deleted, and with which propagation policy.
func (o *Object) State() string {
	switch {
	case o.Missing == decide.Present.String():
		return "not listed"
	case o.Missing != "":
		return strings.ToLower(o.Missing)
	case o.Terminating == "":
		return ""
	}
	text := "terminating"
	if how := map[string]string{"Foreground": "in the foreground", "Orphan": "orphaning"}[o.Terminating]; how != "" {
		text += ", " + how
	}
	return text
}

// Others returns how many similar objects are folded into this one; "" if there are none.
func (o *Object) Others() string {
	if o.Similar == 0 {
		return ""
	}
	return "and " + printer.Count(o.Similar, "similar one", "similar ones")
}

// OtherOwners returns the owners under which the tree does not show the object, and the
// status of owners that do not match their references.
func (o *Object) OtherOwners() string {
	var texts []string
	for i, owner := range o.Owners {
		known := owner.Standing != "" && owner.Standing != decide.Present.String()
		switch {
		case i > 0 && known:
			texts = append(texts, "also "+owner.Name+", "+strings.ToLower(owner.Standing))
		case i > 0:
			texts = append(texts, "also "+owner.Name)
		case known:
			texts = append(texts, strings.ToLower(owner.Standing)+": "+owner.Because)
		}
	}
	return strings.Join(texts, "; ")
}
