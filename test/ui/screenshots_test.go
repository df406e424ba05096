package ui

import (
	"flag"
	"path/filepath"
	"testing"
)

var screenshots = flag.String("screenshots", "", "write a picture of each page into this `folder`, in both themes")

func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("run make screenshots")
	}
	b := window(t)
	address, _ := serve(t, small().sources("prod"))
	for _, scheme := range []string{"light", "dark"} {
		b.Scheme(scheme)
		for name, path := range map[string]string{
			"now": "/", "graph": "/graph?fold=no", "picture": "/graph?view=picture", "preview": "/graph?delete=web-0", "preview-picture": "/graph?view=picture&delete=web-0",
			"stuck": "/stuck", "decisions": "/decisions", "policies": "/policies", "object": "/object?kind=Pod&namespace=shop&name=pod-1", "empty": "/graph?q=nothing",
		} {
			b.Open(address + path)
			if name == "decisions" || name == "object" {
				b.Click(".decisions summary")
			}
			b.Screenshot(filepath.Join(*screenshots, name+"-"+scheme+".png"), 1400, 900)
		}
	}
}
