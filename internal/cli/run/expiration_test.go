package run

import (
	"crypto/tls"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestExpiration_ReportsServedCertificate(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	for claim, tc := range map[string]struct {
		certificate *tls.Certificate
		err         error
		want        []float64
	}{
		"there is one":          {&server.TLS.Certificates[0], nil, []float64{float64(server.Certificate().NotAfter.Unix())}},
		"there is none yet":     {nil, errors.New("none yet"), nil},
		"there is an empty one": {&tls.Certificate{}, nil, nil},
		"it can not be read":    {&tls.Certificate{Certificate: [][]byte{{1, 2, 3}}}, nil, nil},
	} {
		t.Run(claim, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			registry.MustRegister(expiration(func() (*tls.Certificate, error) { return tc.certificate, tc.err }))
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var got []float64
			for _, family := range families {
				for _, m := range family.Metric {
					got = append(got, m.GetGauge().GetValue())
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("seconds since 1970 (-want +got):\n%s", diff)
			}
		})
	}
}
