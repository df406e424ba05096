package objectstate

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// GracePeriodAnnotation is the key of the annotation with the grace period of the request to delete an object. The API
// server stores it only for types that are deleted gracefully, such as Pods.
const GracePeriodAnnotation = "gleaner.dev/requested-grace-period"

// gracePeriod is the document in the annotation.
type gracePeriod struct {
	Seconds int64 `json:"seconds"`
}

// ReadGracePeriod returns the grace period in seconds that was requested for an object, if its annotation is Valid, and
// the status of the annotation.
func ReadGracePeriod(o metav1.Object, keys statekey.Keys) (seconds int64, status Status) {
	text, ok := o.GetAnnotations()[GracePeriodAnnotation]
	if !ok {
		return 0, Missing
	}
	var document gracePeriod
	signed, ok := parseSigned([]byte(text))
	switch {
	case !ok || json.Unmarshal(signed.Data, &document) != nil || document.Seconds < 0:
		return 0, Invalid
	case !keys.Verify(gracePeriodOf(o), signed):
		return 0, Unverified
	default:
		return document.Seconds, Valid
	}
}

// SignGracePeriod returns the grace period that was requested for an object as the signed value of the annotation.
func SignGracePeriod(o metav1.Object, seconds int64, keys statekey.Keys) (string, error) {
	signed, err := keys.Sign(gracePeriodOf(o), gracePeriod{seconds})
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(signed)
	return string(text), err
}

func gracePeriodOf(o metav1.Object) statekey.Subject {
	return statekey.Subject{Purpose: statekey.GracePeriod, UID: o.GetUID()}
}
