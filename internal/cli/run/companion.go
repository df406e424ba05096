package run

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

	"github.com/gleaner-dev/gleaner/internal/cli/serving"
	"github.com/gleaner-dev/gleaner/operator/certs"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/latest"
	operator "github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// webhookSecret holds the webhook's certificate.
const webhookSecret = "gleaner-webhook"

// companionOptions are the flags of run that apply to companion mode and to webhooks, which it requires.
type companionOptions struct {
	collectorUser  string // "": it is discovered
	enableWebhooks bool   // in primary mode
	webhookCerts   string // "": the certificate is self-signed
	webhookAddress string
	webhookService string
	webhookURL     string
}

func defaultCompanionOptions() companionOptions {
	return companionOptions{
		webhookAddress: ":9443",
		webhookService: "gleaner-webhook",
	}
}

func (o *companionOptions) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.collectorUser, "collector-user", o.collectorUser,
		"`user` name of the built-in garbage collector; detected automatically by default; companion mode only")
	flags.BoolVar(&o.enableWebhooks, "enable-webhooks", o.enableWebhooks,
		"serve webhooks, which policies with modules that protect objects require; always in companion mode")
	flags.StringVar(&o.webhookAddress, "webhook-bind-address", o.webhookAddress,
		"bind `address` of the webhooks, which admit the built-in garbage collector's deletes, and users' deletes of what modules protect")
	flags.StringVar(&o.webhookService, "webhook-service", o.webhookService,
		"`name` of the Service in the operator's namespace, port 443, at which the API server calls the webhooks")
	flags.StringVar(&o.webhookURL, "webhook-url", o.webhookURL,
		"`URL` at which the API server calls the webhooks, instead of a Service, such as https://localhost:9443"+companion.VetoPath)
	flags.StringVar(&o.webhookCerts, "webhook-cert-dir", o.webhookCerts,
		"`directory` with the webhooks' certificate as tls.crt, tls.key and ca.crt, as cert-manager writes them; by default Gleaner issues one")
}

// validate returns all invalid options, joined.
func (o *companionOptions) validate() error {
	var wrong []error
	if !serving.IsAddress(o.webhookAddress) || o.webhookAddress == "0" {
		wrong = append(wrong, fmt.Errorf("--webhook-bind-address=%s: use host:port or :port", o.webhookAddress))
	}
	if o.webhookURL == "" {
		if o.webhookService == "" {
			wrong = append(wrong, errors.New("--webhook-service is empty: name the Service of the webhook, or set --webhook-url"))
		}
		return errors.Join(wrong...)
	}
	at, err := url.Parse(o.webhookURL)
	if err != nil || at.Scheme != "https" || at.Hostname() == "" || at.Path != companion.VetoPath || net.ParseIP(at.Hostname()) != nil {
		wrong = append(wrong, fmt.Errorf("--webhook-url=%s: use https://host:port%s, with a host name, for which the certificate is issued",
			o.webhookURL, companion.VetoPath))
	}
	return errors.Join(wrong...)
}

// client returns how the API server reaches the webhook, and the host name for its certificate.
func (o *companionOptions) client(namespace string) (config admissionv1.WebhookClientConfig, host string) {
	if at, err := url.Parse(o.webhookURL); err == nil && o.webhookURL != "" {
		return admissionv1.WebhookClientConfig{URL: &o.webhookURL}, at.Hostname()
	}
	return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
		Namespace: namespace, Name: o.webhookService, Path: ptr.To(companion.VetoPath), Port: ptr.To[int32](443),
	}}, o.webhookService + "." + namespace + ".svc"
}

// webhookServer serves webhooks: for the built-in garbage collector's deletes, and for users' deletes of what modules protect.
type webhookServer struct {
	options      *options
	host         string
	identity     latest.Value[webhook.Identity]
	certificates *certs.Certificates // nil until it is added to a manager
}

// endpoint returns where the API server reaches the webhook.
func (w *webhookServer) endpoint() *webhook.Endpoint {
	e := &webhook.Endpoint{Identity: &w.identity}
	e.Client, w.host = w.options.client(w.options.namespace)
	return e
}

// builtInCollector returns the user name of the built-in collector.
func (o *companionOptions) builtInCollector() companion.Collector {
	return companion.Collector{User: cmp.Or(o.collectorUser, companion.DefaultCollectorUser), Given: o.collectorUser != ""}
}

// addCertificate adds the certificate to the manager: a self-signed one, or one from a directory.
func (w *webhookServer) addCertificate(mgr manager.Manager, config *rest.Config, log logr.Logger) (err error) {
	o := certs.Options{
		Namespace: w.options.namespace, SecretName: webhookSecret, DNSName: w.host, WebhookConfiguration: companion.ConfigurationName,
		Dir: w.options.cacheDir, Identity: &w.identity, Log: log.WithName("webhook"),
	}
	if w.options.webhookCerts != "" {
		o.Dir = w.options.webhookCerts
		w.certificates, err = certs.AddFromDirectory(mgr, o)
		return err
	}
	if o.Client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make client for certificates: %w", err)
	}
	w.certificates, err = certs.AddFromSecret(mgr, o)
	return err
}

// addTo adds the webhook's server to the manager.
func (w *webhookServer) addTo(mgr manager.Manager, config *rest.Config, collector *operator.Operator, log logr.Logger) error {
	if err := w.addCertificate(mgr, config, log); err != nil {
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
	return mgr.Add(&webhook.Server{
		Address: w.options.webhookAddress, Handler: collector.Webhooks(), Certificate: w.certificates.Certificate,
		ValidSecret: w.certificates.ValidSecret, Ready: w.certificates.Ready(), Log: log.WithName("webhook"),
	})
}
