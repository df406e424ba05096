package run

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/prometheus/client_golang/prometheus"
)

var expirationDesc = prometheus.NewDesc("gleaner_webhook_certificate_expiration_timestamp_seconds",
	"Expiration time of the webhook's certificate, in seconds since the Unix epoch; absent without a certificate.", nil, nil)

// expiration collects the metric of when a certificate expires.
type expiration func() (*tls.Certificate, error)

// Describe implements prometheus.Collector.
func (e expiration) Describe(descs chan<- *prometheus.Desc) { descs <- expirationDesc }

// Collect implements prometheus.Collector. Without a certificate it reports nothing.
func (e expiration) Collect(out chan<- prometheus.Metric) {
	certificate, err := e()
	if err != nil || len(certificate.Certificate) == 0 {
		return
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		return
	}
	out <- prometheus.MustNewConstMetric(expirationDesc, prometheus.GaugeValue, float64(leaf.NotAfter.Unix()))
}
