package main

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/prometheus/client_golang/prometheus"
)

var expirationDesc = prometheus.NewDesc("gleaner_webhook_certificate_expiration_timestamp_seconds",
	"When the webhook's certificate expires, in seconds since 1970; missing while there is none.", nil, nil)

// expiration is the metric that tells until when a certificate is good.
type expiration func() (*tls.Certificate, error)

// Describe implements prometheus.Collector.
func (e expiration) Describe(descs chan<- *prometheus.Desc) { descs <- expirationDesc }

// Collect implements prometheus.Collector. Without a certificate there is nothing to tell.
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
