package main

import (
	"fmt"
	"strings"
)

const (
	chartWidth, chartHeight = 640, 90 // of one measure's chart
	chartMargin             = 24
)

// chart draws a line for each measure, each with its own scale from zero.
func (r *result) chart() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		chartWidth+2*chartMargin, len(measures)*(chartHeight+chartMargin)+chartMargin)
	fmt.Fprintln(&b, `<rect width="100%" height="100%" fill="white"/>`)
	for i, m := range measures {
		r.drawOne(&b, m.name, chartMargin+i*(chartHeight+chartMargin))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (r *result) drawOne(b *strings.Builder, name string, top int) {
	highest, end := 1.0, 1.0
	for _, s := range r.samples {
		highest, end = max(highest, s.values[name]), max(end, s.at.Seconds())
	}
	fmt.Fprintf(b, `<text x="%d" y="%d">%s, 0 to %.0f, over %.0f s</text>`+"\n", chartMargin, top-4, name, highest, end)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#ccc"/>`+"\n", chartMargin, top, chartWidth, chartHeight)
	var points []string
	for _, s := range r.samples {
		points = append(points, fmt.Sprintf("%.1f,%.1f",
			chartMargin+chartWidth*s.at.Seconds()/end, float64(top)+chartHeight*(1-s.values[name]/highest)))
	}
	fmt.Fprintf(b, `<polyline fill="none" stroke="#06c" points="%s"/>`+"\n", strings.Join(points, " "))
}
