package ownership

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/record"
)

// owned returns what a text describes: a line for each object, "name: owner, other owner" and, after a "!", its state.
func owned(text string) *Ownership {
	objects := map[types.UID]*Object{}
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line, state, _ := strings.Cut(strings.TrimSpace(line), " !")
		name, owners, _ := strings.Cut(line, ":")
		kind, _, _ := strings.Cut(name, "-")
		o := &Object{Object: record.Object{Kind: kind, Name: name, UID: types.UID(name)}}
		for owner := range strings.SplitSeq(strings.TrimSpace(owners), ", ") {
			if owner != "" {
				o.Owners = append(o.Owners, Owner{UID: types.UID(owner)})
			}
		}
		switch state {
		case "target":
			o.Target = true
		case "absent":
			o.Missing = "Absent"
		case "terminating":
			o.Terminating = "Background"
		}
		objects[o.UID] = o
	}
	return &Ownership{Objects: depthFirst(objects)}
}

func TestFold_LeavesTheFirstOfSimilarDependents(t *testing.T) {
	for name, c := range map[string]struct{ objects, want string }{
		"of one owner": {
			"rs\npod-1: rs\npod-2: rs\npod-3: rs\npod-4: rs\nsecret: rs",
			"rs, pod-1 and 3 similar ones, secret",
		},
		"but no fewer than three": {"rs\npod-1: rs\npod-2: rs", "rs, pod-1, pod-2"},
		"by state": {
			"rs\npod-1: rs\npod-2: rs !terminating\npod-3: rs\npod-4: rs",
			"rs, pod-1 and 2 similar ones, pod-2",
		},
		"with similar dependents": {
			"d\nrs-1: d\nrs-2: d\nrs-3: d\npod-1: rs-1\npod-2: rs-2\npod-3: rs-3",
			"d, rs-1 and 2 similar ones, pod-1",
		},
		"but not with others": {
			"d\nrs-1: d\nrs-2: d\nrs-3: d\npod-1: rs-1\npod-2: rs-2",
			"d, rs-1, pod-1, rs-2, pod-2, rs-3",
		},
		"within each of similar ones": {
			"rs-1\nrs-2\npod-1: rs-1\npod-2: rs-1\npod-3: rs-1\npod-4: rs-2",
			"rs-1, pod-1 and 2 similar ones, rs-2, pod-4",
		},
		"but not the target": {"rs\npod-1: rs\npod-2: rs !target\npod-3: rs\npod-4: rs", "rs, pod-1 and 2 similar ones, pod-2"},
		"but no missing owners": {
			"rs-1 !absent\nrs-2 !absent\nrs-3 !absent\npod-1: rs-1\npod-2: rs-2\npod-3: rs-3",
			"rs-1, pod-1, rs-2, pod-2, rs-3, pod-3",
		},
		"but no object with several owners, and no further owner": {
			"rs\npod-1: rs\npod-2: rs\npod-3: rs\npod-4: rs\nsecret-1: rs, pod-4\nsecret-2: rs\nsecret-3: rs\nsecret-4: rs",
			"rs, pod-1 and 2 similar ones, pod-4, secret-1, secret-2 and 2 similar ones",
		},
		"at the top": {"a-1\na-2\na-3\nb-1: a-1\nb-2: a-2\nb-3: a-3", "a-1 and 2 similar ones, b-1"},
	} {
		t.Run(name, func(t *testing.T) {
			o := owned(c.objects)
			all := len(o.Objects)
			o.Fold()
			var names []string
			for _, object := range o.Objects {
				names = append(names, strings.TrimSpace(object.Name+" "+object.Others()))
			}
			if got := strings.Join(names, ", "); got != c.want || o.Folded != all-len(o.Objects) {
				t.Errorf("folded %d of %d: %s\nwant %s", o.Folded, all, got, c.want)
			}
		})
	}
}

// The picture of 500 objects was 23,000 pixels tall.
func TestFold_APictureOfManyObjectsIsSmall(t *testing.T) {
	var text strings.Builder
	for i := range 50 {
		fmt.Fprintf(&text, "rs-%d\n", i)
		for j := range 9 {
			fmt.Fprintf(&text, "pod-%d-%d: rs-%d\n", i, j, i)
		}
	}
	o := owned(text.String())
	o.Fold()
	if len(o.Objects) != 2 || o.Folded != 498 {
		t.Errorf("%d objects are left, and %d folded", len(o.Objects), o.Folded)
	}
	if a, b := o.Objects[0].Others(), o.Objects[1].Others(); a != "and 49 similar ones" || b != "and 8 similar ones" {
		t.Errorf("%q, %q", a, b)
	}
}
