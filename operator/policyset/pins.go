package policyset

import (
	"fmt"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// A pin is the digest that a policy or finalizer names in module.digest. A user who may edit
// a module is not necessarily trusted with what a policy does: with the reads, writes and
// requests that it grants, and with the objects that it deletes or keeps. So only the
// content that the author of the policy has named is evaluated.
type pin struct {
	digest string // empty: there is no pin
	why    string // why one is required; empty: it is not
}

// pinOf returns the pin of a resource. Monitor changes nothing, but what grants allow is
// read and requested in Monitor as well.
func pinOf(ref v1alpha1.ModuleReference, enforce, grants bool) pin {
	switch {
	case enforce:
		return pin{ref.Digest, "mode is Enforce"}
	case grants:
		return pin{ref.Digest, "there are grants"}
	default:
		return pin{digest: ref.Digest}
	}
}

// check returns why content with this digest must not be evaluated. The message has the
// value to write.
func (p pin) check(module, digest string) Problem {
	switch {
	case p.digest == "" && p.why == "", p.digest != "" && p.digest == digest:
		return Problem{}
	case p.digest == "":
		return Problem{v1alpha1.ConditionModuleReady, "ModuleNotPinned", fmt.Sprintf(
			"%s is not pinned, and %s: review it, then write module.digest: %s", module, p.why, digest)}
	default:
		return Problem{v1alpha1.ConditionModuleReady, "DigestMismatch", fmt.Sprintf(
			"%s has digest %s, and module.digest is %s: review the module, then write module.digest: %s", module, digest, p.digest, digest)}
	}
}
