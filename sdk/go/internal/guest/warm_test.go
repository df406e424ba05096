package guest

import "testing"

func TestTheRehearsalGoesWell(t *testing.T) {
	if err := warm(); err != nil {
		t.Error(err)
	}
}
