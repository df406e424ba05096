package printer

import "strings"

// TreePrefixes returns the prefixes that draw a tree, one per row, from the depths of the
// rows in depth-first order.
func TreePrefixes(depths []int) []string {
	rows := make([]string, len(depths))
	var open []bool // by depth: whether a sibling follows
	for i := len(depths) - 1; i >= 0; i-- {
		depth := depths[i]
		for len(open) <= depth {
			open = append(open, false)
		}
		var b strings.Builder
		for at := 1; at < depth; at++ {
			b.WriteString(map[bool]string{true: "│ ", false: "  "}[open[at]])
		}
		if depth > 0 {
			b.WriteString(map[bool]string{true: "├─", false: "└─"}[open[depth]])
		}
		rows[i] = b.String()
		open[depth] = true
		open = open[:depth+1]
	}
	return rows
}
