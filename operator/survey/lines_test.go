package survey_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/survey"
)

func forbidden(resource, only string) survey.Unread {
	r := schema.GroupResource{Resource: resource}
	return survey.Unread{Resource: r, OnlyNamespace: only, Err: apierrors.NewForbidden(r, "", errors.New("no right"))}
}

func TestLines_FoldsForbiddenTypes(t *testing.T) {
	for claim, c := range map[string]struct {
		unread []survey.Unread
		want   []string
	}{
		"nothing": {},
		"three have a line each": {
			[]survey.Unread{forbidden("a", ""), forbidden("b", ""), forbidden("c", "")},
			[]string{"a: a is forbidden: no right", "b: b is forbidden: no right", "c: c is forbidden: no right"},
		},
		"four share one line, other errors have their own": {
			[]survey.Unread{forbidden("a", ""), {Resource: schema.GroupResource{Resource: "b"}, Err: errors.New("it is down")}, forbidden("c", ""), forbidden("d", ""), forbidden("e", "")},
			[]string{"4 types that you are not allowed to list: a, c, d, e", "b: it is down"},
		},
		"types with one readable namespace have their own line": {
			[]survey.Unread{forbidden("a", "shop"), forbidden("b", "shop"), forbidden("c", "shop"), forbidden("d", "shop"), forbidden("e", "")},
			[]string{"4 types that you are not allowed to list outside of namespace shop: a, b, c, d", "e: e is forbidden: no right"},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			if diff := cmp.Diff(c.want, survey.Lines(c.unread)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
