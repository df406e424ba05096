package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/gleaner-dev/gleaner/operator/certs"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/operator/modules"
	"github.com/gleaner-dev/gleaner/operator/veto"
)

// usualCollector is whom the other collector works as nearly everywhere: it is taken to
// until it shows who it is.
const usualCollector = "system:serviceaccount:kube-system:generic-garbage-collector"

// webhookSecret holds the webhook's certificate.
const webhookSecret = "gleaner-webhook"

// besideOptions are the flags of run that count for a companion only.
type besideOptions struct {
	collectorUser  string // "": it is learnt
	webhookCerts   string // "": the certificate is made
	webhookAddress string
	webhookService string
	webhookURL     string
}

func defaultBesideOptions() besideOptions {
	return besideOptions{
		webhookAddress: ":9443",
		webhookService: "gleaner-webhook",
	}
}

func (o *besideOptions) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.collectorUser, "collector-user", o.collectorUser,
		"`user` that the other collector works as, in its deletes; by default that is found out; for a companion")
	flags.StringVar(&o.webhookAddress, "webhook-bind-address", o.webhookAddress,
		"`address` of the webhook that is asked about the other collector's deletes; for a companion")
	flags.StringVar(&o.webhookService, "webhook-service", o.webhookService,
		"`name` of the Service in the operator's namespace by which the API server reaches the webhook, on port 443; for a companion")
	flags.StringVar(&o.webhookURL, "webhook-url", o.webhookURL,
		"`URL` by which the API server reaches the webhook in place of a Service, as https://localhost:9443"+modules.VetoPath+"; for a companion")
	flags.StringVar(&o.webhookCerts, "webhook-cert-dir", o.webhookCerts,
		"`folder` with the webhook's certificate as tls.crt, tls.key and ca.crt, as cert-manager makes it; by default Gleaner makes one; for a companion")
}

// validate returns what is wrong with the options.
func (o *besideOptions) validate() error {
	var wrong []error
	if !isAddress(o.webhookAddress) || o.webhookAddress == "0" {
		wrong = append(wrong, fmt.Errorf("--webhook-bind-address=%s: use host:port or :port", o.webhookAddress))
	}
	if o.webhookURL == "" {
		if o.webhookService == "" {
			wrong = append(wrong, errors.New("--webhook-service is empty: name the Service in front of the webhook, or give a --webhook-url"))
		}
		return errors.Join(wrong...)
	}
	at, err := url.Parse(o.webhookURL)
	if err != nil || at.Scheme != "https" || at.Hostname() == "" || at.Path != modules.VetoPath || net.ParseIP(at.Hostname()) != nil {
		wrong = append(wrong, fmt.Errorf("--webhook-url=%s: use https://host:port%s, with a host name: that is what the certificate is made for",
			o.webhookURL, modules.VetoPath))
	}
	return errors.Join(wrong...)
}

// client says where the API server finds the webhook, and by which name.
func (o *besideOptions) client(namespace string) (config admissionv1.WebhookClientConfig, host string) {
	if at, err := url.Parse(o.webhookURL); err == nil && o.webhookURL != "" {
		return admissionv1.WebhookClientConfig{URL: &o.webhookURL}, at.Hostname()
	}
	return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
		Namespace: namespace, Name: o.webhookService, Path: ptr.To(modules.VetoPath), Port: ptr.To[int32](443),
	}}, o.webhookService + "." + namespace + ".svc"
}

// webhook is the part of a companion that is asked before the other collector deletes.
type webhook struct {
	options      *options
	host         string
	certificates *certs.Certificates // nil until it is added to a manager
}

// veto says how the API server is to ask it.
func (w *webhook) veto() *modules.Veto {
	v := &modules.Veto{User: cmp.Or(w.options.collectorUser, usualCollector), Given: w.options.collectorUser != "", CA: func() []byte {
		if w.certificates == nil {
			return nil
		}
		return w.certificates.Authority()
	}, Secret: func() string {
		if w.certificates == nil {
			return ""
		}
		return w.certificates.Secret()
	}}
	v.Client, w.host = w.options.client(w.options.namespace)
	return v
}

// certify has a manager keep its certificate: one that it makes, or one from elsewhere.
func (w *webhook) certify(mgr manager.Manager, config *rest.Config, collector *loop.Loop, log logr.Logger) (err error) {
	o := certs.Options{
		Namespace: w.options.namespace, Secret: webhookSecret, Host: w.host, Configuration: modules.VetoName,
		Folder: w.options.cacheDir, OnChange: collector.CertificateChanged, Log: log.WithName("webhook"),
	}
	if w.options.webhookCerts != "" {
		o.Folder = w.options.webhookCerts
		w.certificates, err = certs.Follow(mgr, o)
		return err
	}
	if o.Client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make client for certificates: %w", err)
	}
	w.certificates, err = certs.Add(mgr, o)
	return err
}

// addTo has a manager serve it.
func (w *webhook) addTo(mgr manager.Manager, config *rest.Config, collector *loop.Loop, log logr.Logger) error {
	if err := w.certify(mgr, config, collector, log); err != nil {
		return err
	}
	if err := metrics.Registry.Register(expiration(w.certificates.Certificate)); err != nil {
		return fmt.Errorf("register the certificate's metric: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", func(*http.Request) error {
		_, err := w.certificates.Certificate()
		return err
	}); err != nil {
		return fmt.Errorf("add readiness check: %w", err)
	}
	return mgr.Add(&veto.Server{
		Address: w.options.webhookAddress, Handler: collector.Vetoes(), Certificate: w.certificates.Certificate,
		Knows: w.certificates.Knows, Ready: w.certificates.Ready(), Log: log.WithName("webhook"),
	})
}
