// What tells whether the alerts and the dashboard of config/monitoring do what they
// say: Prometheus itself, which is no part of the product's dependencies.
module github.com/gleaner-dev/gleaner/test/prometheus

go 1.26.7

require (
	github.com/cert-manager/cert-manager v1.21.2 // indirect
	github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring v0.95.1 // indirect
	github.com/prometheus/prometheus v0.316.0 // indirect
)
