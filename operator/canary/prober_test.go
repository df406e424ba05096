package canary

import "testing"

// The built-in collector may be starting.
func TestProber_IsCertainThatNoneIsRunningAfterTwoCanariesInARow(t *testing.T) {
	p := NewProber(ProberOptions{})
	if p.isCertain(false) {
		t.Error("one canary is enough")
	}
	if !p.isCertain(false) {
		t.Error("two are not enough")
	}
	if !p.isCertain(true) {
		t.Error("one that was finalized is not enough")
	}
	if p.isCertain(false) {
		t.Error("after one was finalized, one that was not is enough")
	}
}
