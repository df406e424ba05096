package veto_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/veto"
)

const deleting = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":"DELETE",
  "kind":{"group":"","version":"v1","kind":"ConfigMap"},"oldObject":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}},
  "options":{"propagationPolicy":"Foreground"},"dryRun":true}}`

// ask sends a body to a webhook whose judge answers so, and returns what it was asked
// and what it says.
func ask(t *testing.T, body string, answer veto.Answer) (asked []veto.Request, response *admissionv1.AdmissionResponse) {
	t.Helper()
	handler := veto.Handler(func(_ context.Context, r veto.Request) veto.Answer {
		asked = append(asked, r)
		return answer
	})
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/veto", strings.NewReader(body)))
	if w.Code != http.StatusOK {
		return asked, nil
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil {
		t.Fatal(err)
	}
	if review.Kind != "AdmissionReview" || review.APIVersion != "admission.k8s.io/v1" || review.Request != nil {
		t.Errorf("answered with %+v", review)
	}
	return asked, review.Response
}

func TestTheJudgeIsToldOfTheObjectAndOfHowItIsToGo(t *testing.T) {
	asked, response := ask(t, deleting, veto.Answer{Passes: true})
	if diff := cmp.Diff(&admissionv1.AdmissionResponse{UID: "u1", Allowed: true}, response); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if len(asked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	got := asked[0]
	if got.Object.GetName() != "a" || got.Kind != (schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}) ||
		got.Propagation != metav1.DeletePropagationForeground || !got.DryRun {
		t.Errorf("asked about %+v", got)
	}
}

func TestARefusalIsAConflict(t *testing.T) {
	_, response := ask(t, deleting, veto.Refuse("kept by %s", "a policy"))
	want := &admissionv1.AdmissionResponse{UID: "u1", Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "kept by a policy",
	}}
	if diff := cmp.Diff(want, response); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestWhatCannotBeUnderstoodIsRefused(t *testing.T) {
	for name, body := range map[string]string{
		"not a delete":           strings.Replace(deleting, "DELETE", "UPDATE", 1),
		"no object":              strings.Replace(deleting, `"oldObject"`, `"newObject"`, 1),
		"no options":             strings.Replace(deleting, `"options"`, `"choices"`, 1),
		"options of some sort":   strings.Replace(deleting, `"Foreground"`, `7`, 1),
		"an object without kind": strings.Replace(deleting, `"kind":"ConfigMap","metadata"`, `"metadata"`, 1),
		"not a review":           `{"request": null}`,
		"not JSON":               `delete it`,
	} {
		t.Run(name, func(t *testing.T) {
			asked, response := ask(t, body, veto.Answer{Passes: true})
			if len(asked) != 0 || response != nil && response.Allowed {
				t.Errorf("asked about %+v, answered %+v", asked, response)
			}
		})
	}
}

// Somebody in the cluster who can reach the webhook could otherwise tell of an object
// whatever has it deleted, or of another collector that is not one.
func TestWhoDoesNotKnowWhatPathsBeginWithIsNotAnswered(t *testing.T) {
	certificate := certificateFor(t, "localhost")
	ready := make(chan struct{})
	close(ready)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 8)
	s := &veto.Server{
		Address: address, Ready: ready, Log: logr.Discard(),
		Certificate: func() (*tls.Certificate, error) { return &certificate, nil },
		Knows:       func(secret string) bool { return secret == "secret" },
		Handler:     http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // it is on loopback
	post := func(path string) int {
		var answer *http.Response
		devtest.Eventually(t, time.Minute, func() (err error) {
			answer, err = client.Post("https://"+address+path, "application/json", nil)
			return err
		})
		defer answer.Body.Close()
		return answer.StatusCode
	}
	for _, path := range []string{"/veto", "//veto", "/", "/guessed/veto", "/veto/secret", "/secre/t/veto"} {
		if code := post(path); code != http.StatusNotFound {
			t.Errorf("POST %s is answered with %d", path, code)
		}
	}
	if code, path := post("/secret/place/holds"), <-asked; code != http.StatusOK || path != "/place/holds" || len(asked) != 0 {
		t.Errorf("the API server is answered with %d for %s, and %d others were", code, path, len(asked))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// certificateFor is one that is signed by itself.
func certificateFor(t *testing.T, host string) tls.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{host}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}
