package loop

import "testing"

// Another collector may be starting, as kube-controller-manager's does beside gleaner dev --companion.
func TestCompany_IsMissingOnlyAfterTwoUnfinishedCanariesInARow(t *testing.T) {
	var c company
	if c.certain(false) {
		t.Error("one canary is enough")
	}
	if c.known() || c.missing() {
		t.Error("before it is certain, something is known")
	}
	if !c.certain(false) {
		t.Error("two are not enough")
	}
	if !c.certain(true) {
		t.Error("one that was finished is not enough")
	}
	if c.certain(false) {
		t.Error("after one was finished, one that was not is enough")
	}
}
