package payload

import (
	"encoding/base64"
	"testing"
)

// The limit of etcd, minus space for other fields.
const largestConfigMap = 1 << 20

func TestPayloads_FitIntoAConfigMap(t *testing.T) {
	for _, p := range All() {
		t.Run(p.Name, func(t *testing.T) {
			objects, err := p.Module("tenant")
			if err != nil {
				t.Fatal(err)
			}
			if p.Rego != nil {
				t.Logf("%d bytes", len(p.Rego()))
				return
			}
			source, ok := objects[0].Object["binaryData"].(map[string]any)["module"].(string)
			packed, err := base64.StdEncoding.DecodeString(source)
			if !ok || err != nil || len(packed) > largestConfigMap {
				t.Errorf("the module has %d bytes, %v", len(packed), err)
			}
			t.Logf("%d bytes compressed, %d uncompressed", len(packed), len(p.Wasm(p.Limits.memory())))
		})
	}
}

func TestLimits_Fit_ReturnsTheHighestAccepted(t *testing.T) {
	requested := Limits{Fuel: FuelLimits[0], Memory: MemoryLimits[0]}
	got := requested.Fit(func(l Limits) bool { return l.Fuel <= 2e9 && l.Memory != "1Gi" })
	if want := (Limits{Fuel: 2e9, Memory: "512Mi"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := requested.Fit(func(Limits) bool { return false }); got != (Limits{}) {
		t.Errorf("got %+v with nothing accepted, want the defaults", got)
	}
}
