package webhook_test

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

func TestAt_HasTheSecretBeforeThePath(t *testing.T) {
	for name, client := range map[string]admissionv1.WebhookClientConfig{
		"a Service": {Service: &admissionv1.ServiceReference{Namespace: "gleaner-system", Name: "gleaner-webhook", Path: ptr.To("/other")}},
		"a URL":     {URL: ptr.To("https://localhost:9443/other")},
	} {
		t.Run(name, func(t *testing.T) {
			e := webhook.Endpoint{Client: client, Identity: &latest.Value[webhook.Identity]{}}
			if _, ok := e.At("/veto"); ok {
				t.Error("it has an address before there is a certificate")
			}
			e.Identity.Store(webhook.Identity{CABundle: []byte("CA"), Secret: "secret"})
			config, ok := e.At("/veto")
			if !ok || string(config.CABundle) != "CA" {
				t.Errorf("got %+v, %t", config, ok)
			}
			if s := config.Service; s != nil && *s.Path != "/secret/veto" {
				t.Errorf("path %s", *s.Path)
			}
			if u := config.URL; u != nil && *u != "https://localhost:9443/secret/veto" {
				t.Errorf("URL %s", *u)
			}
			if s := e.Client.Service; s != nil && *s.Path != "/other" {
				t.Error("the endpoint itself was changed")
			}
		})
	}
}
