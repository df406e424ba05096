package run

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

func TestWarnings_ThatATypeIsDeprecatedAreDroppedAndOthersAreNot(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, text := range []string{
			"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
			"policy/v1beta1 PodSecurityPolicy is deprecated in v1.21+, unavailable in v1.25+",
			"the admission webhook is deprecated", "unknown field",
		} {
			w.Header().Add("Warning", `299 - "`+text+`"`)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": []}`))
	}))
	t.Cleanup(server.Close)
	reported := &warnings{}
	op := &Operator{options: Options{Config: &rest.Config{Host: server.URL, WarningHandler: reported}}}
	client := metadata.NewForConfigOrDie(metadata.ConfigFor(op.limited(-1)))
	if _, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "endpoints"}).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"the admission webhook is deprecated", "unknown field"}; !slices.Equal(*reported, want) {
		t.Errorf("warned of %q; want %q", *reported, want)
	}
}
