package settings_test

import (
	"testing"

	"github.com/gleaner-dev/gleaner/policies/settings"
)

// Numbers are exact, so those with large exponents are not computed with.
func TestNumbersThatAreTooLarge_AreProblemsAndDoNotEndTheProcess(t *testing.T) {
	for _, number := range []string{"1e1000001", "1e-1000001", "1e999999999999", "-1e1000001"} {
		s := parse(t, `{"properties": {"size": {"type": "integer", "minimum": 1, "multipleOf": 3}}}`)
		if got := s.Problems([]byte(`{"size": ` + number + `}`)); got == "" {
			t.Errorf("%s is accepted", number)
		}
		for _, keyword := range []string{"multipleOf", "const"} {
			s, err := settings.Parse([]byte(`{"properties": {"size": {"` + keyword + `": ` + number + `}}}`))
			if err == nil && s.Problems([]byte(`{"size": 2}`)) == "" {
				t.Errorf("with %s: %s, 2 is accepted", keyword, number)
			}
		}
	}
}
