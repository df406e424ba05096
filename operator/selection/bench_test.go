package selection_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/gleaner-dev/gleaner/operator/selection"
)

// What an event costs with very many policies, and with selectors that no label leads to.
func BenchmarkEvaluate(b *testing.B) {
	set := labels.Set{"app": "shop", "tier": "data", "pod-template-hash": "5d4f8c7c9"}
	for _, text := range []string{"group=%d", "tier=%d", "!group%d"} {
		byText := map[string]labels.Selector{}
		for i := range 500 {
			selector, err := labels.Parse(fmt.Sprintf(text, i))
			if err != nil {
				b.Fatal(err)
			}
			byText[selector.String()] = selector
		}
		list := selection.NewList(byText)
		b.Run(fmt.Sprintf("500 of "+text, 0), func(b *testing.B) {
			for b.Loop() {
				list.Evaluate(set)
			}
		})
	}
}
