package hostabi

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// FuzzMarshalVerdict compares what is written without reflection with encoding/json.
func FuzzMarshalVerdict(f *testing.F) {
	f.Add("Wait", "<a&b>\u2028\x00\x1f\x7f\xff\"\\\n\r\t\b\f ä 🎉", `{"a": [1, "<\u003e"]}`, int64(1), uint8(3))
	f.Add("", "", "", int64(0), uint8(0))
	f.Fuzz(func(t *testing.T, decision, text, state string, number int64, dependents uint8) {
		v := Verdict{Decision: Decision(decision), Reason: text, Delay: Duration(number), After: Duration(number / 2)}
		if number%2 == 1 {
			v.GracePeriodSeconds, v.Propagation = &number, Propagation(text)
		}
		for i := range dependents % 4 {
			v.Dependents = append(v.Dependents, DependentDecision{Group: strings.Repeat(decision, int(i%2)), Kind: text, Decision: DecisionOrphan})
		}
		if json.Valid([]byte(state)) {
			v.State = json.RawMessage(state)
		}
		want, err := marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		got, err := MarshalVerdict(v)
		if err != nil || string(got) != string(want) {
			t.Errorf("MarshalVerdict:\n%s %v, and encoding/json:\n%s", got, err, want)
		}
	})
}

func TestMarshalVerdict_DurationsAreRead(t *testing.T) {
	for _, d := range []time.Duration{time.Nanosecond, time.Second, 90 * time.Minute, 720 * time.Hour} {
		data, err := MarshalVerdict(Verdict{Decision: DecisionWait, After: Duration(d)})
		if err != nil {
			t.Fatal(err)
		}
		v, err := ParseVerdict(HookFinalize, data)
		if err != nil || time.Duration(v.After) != d {
			t.Errorf("%s: %+v, %v", data, v, err)
		}
	}
}
