package guest

import "testing"

func TestWarm(t *testing.T) {
	if err := warm(); err != nil {
		t.Error(err)
	}
}
