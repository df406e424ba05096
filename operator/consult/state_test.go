package consult_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/memo"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// showing is an API server that has one object.
type showing struct{ *unstructured.Unstructured }

func (s showing) Get(context.Context, policies.Account, schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
	return s.Unstructured, nil
}

func (showing) Namespace(context.Context, string) (consult.Namespace, error) {
	return consult.Namespace{}, nil
}

// What is remembered may be that an object was decided to be kept. While nobody can
// tell whether the operator wrote it, nothing is decided.
func TestState_ThatCanNotBeVerifiedHoldsTheObject(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	facts := ownerless()
	facts.Object.Memo = true
	keys, err := statekey.Parse(map[string][]byte{statekey.Current: bytes.Repeat([]byte{1}, statekey.MinBytes)})
	if err != nil {
		t.Fatal(err)
	}
	m := memo.New(facts.Object.UID, facts.Object.Owners, now)
	signed, err := m.Sign(keys)
	if err != nil {
		t.Fatal(err)
	}
	away := errors.New("the Secret can't be read")
	for claim, c := range map[string]struct {
		annotation               string
		keys                     statekey.Keys
		err                      error
		held, remembered, tossed bool
	}{
		"signed, with the keys":       {annotation: signed, keys: keys, remembered: true},
		"signed, without the keys":    {annotation: signed, err: away, held: true},
		"signed, while keys may lack": {annotation: signed, keys: keys, err: away, remembered: true},
		"not signed":                  {annotation: m.String(), keys: keys, tossed: true},
		"not signed, without keys":    {annotation: m.String(), err: away, tossed: true},
		"signed with a former key":    {annotation: signed, tossed: true},
	} {
		t.Run(claim, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetUID(facts.Object.UID)
			o.SetResourceVersion(facts.Object.ResourceVersion)
			o.SetOwnerReferences(facts.Object.Owners)
			o.SetCreationTimestamp(metav1.NewTime(now.Add(-time.Hour)))
			o.SetAnnotations(map[string]string{memo.Annotation: c.annotation})
			told := 0
			consultant := &consult.Consultant{
				Policies: keeping(func(p *policies.Policy) { p.Needs = policies.NeedsReference }), Default: builtin.Policy{}, Catalog: widgets,
				Reader: showing{o}, Now: func() time.Time { return now },
				Keys: func() (statekey.Keys, error) { return c.keys, c.err }, Unverified: func(error) { told++ },
			}
			got, err := consultant.Ask(t.Context(), consult.Question{Hook: hostabi.HookCollect, Facts: facts})
			if err != nil {
				t.Fatal(err)
			}
			if held := errors.Is(got.Fault, away); held != c.held || held != (got.Verdict.Decision == "") || held != (told == 1) {
				t.Errorf("held %t, fault %v, verdict %+v, told %d times", held, got.Fault, got.Verdict, told)
			}
			if got.Remembered != c.remembered || got.Stray != c.tossed {
				t.Errorf("remembered %t, stray %t", got.Remembered, got.Stray)
			}
		})
	}
}
