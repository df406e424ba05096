package companion_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/webhook/webhooktest"
)

func TestCanaryHandler_ReportsUsersAndAllowsWrites(t *testing.T) {
	var users []string
	handler := companion.CanaryHandler(func(_ context.Context, user string, object types.UID) { users = append(users, user+" "+string(object)) })
	for _, dry := range []string{"false", "true"} {
		response := webhooktest.Send(t, handler, "/canary", `{"request":{"uid":"u","dryRun":`+dry+`,"userInfo":{"username":"system:who"},"oldObject":{"metadata":{"uid":"o"}}}}`)
		if diff := cmp.Diff(&admissionv1.AdmissionResponse{UID: "u", Allowed: true}, response); diff != "" {
			t.Errorf("response (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([]string{"system:who o"}, users); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}
