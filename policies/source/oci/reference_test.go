package oci_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/policies/source/oci"
)

var someDigest = "sha256:" + strings.Repeat("0a", 32)

func TestParseReference(t *testing.T) {
	for text, want := range map[string]oci.Reference{
		"ghcr.io/org/keep-data:v1":         {Registry: "ghcr.io", Repository: "org/keep-data", Tag: "v1"},
		"ghcr.io/org/keep@" + someDigest:   {Registry: "ghcr.io", Repository: "org/keep", Digest: someDigest},
		"ghcr.io/org/keep:a@" + someDigest: {Registry: "ghcr.io", Repository: "org/keep", Tag: "a", Digest: someDigest},
		"localhost/a":                      {Registry: "localhost", Repository: "a"},
		"127.0.0.1:5000/a/b/c":             {Registry: "127.0.0.1:5000", Repository: "a/b/c"},
		"[::1]:5000/a":                     {Registry: "[::1]:5000", Repository: "a"},
		"docker.io/alpine:3":               {Registry: "docker.io", Repository: "library/alpine", Tag: "3"},
		"docker.io/me/it":                  {Registry: "docker.io", Repository: "me/it"},
	} {
		t.Run(text, func(t *testing.T) {
			got, err := oci.ParseReference(text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if text != "docker.io/alpine:3" && got.String() != text {
				t.Errorf("it is written as %s", got)
			}
		})
	}
}

func TestParseReference_SaysWhatToWriteInstead(t *testing.T) {
	for text, says := range map[string]string{
		"":                              "start with the registry",
		"keep-data":                     "start with the registry",
		"org/keep-data":                 "docker.io for Docker Hub",
		"https://ghcr.io/a":             "remove the scheme before ://",
		"ghcr.io/Upper":                 "lower case",
		"ghcr.io/":                      "not a repository",
		"ghcr.io/a//b":                  "not a repository",
		"ghcr.io/../a":                  "not a repository",
		"ghcr.io/a:":                    "not a tag",
		"ghcr.io/a:b/c":                 "not a tag",
		"ghcr.io/a:x y":                 "not a tag",
		"ghcr.io/a@":                    "not a digest",
		"ghcr.io/a@sha256:12":           "use sha256: and 64 hex digits",
		"ghcr.io/a@" + someDigest + "@": "not a digest",
		"ghcr.io/a@sha512:" + strings.Repeat("00", 64): "use sha256:",
		"me:secret@ghcr.io/a":                          "start with the registry",
		"ghcr.io?x=/a":                                 "not a registry",
		"ghcr.io:port/a":                               "not a registry",
		"ghcr.io/" + strings.Repeat("a", 600):          "longer than 512 bytes",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := oci.ParseReference(text)
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want %q", err, says)
			}
		})
	}
}

// What is accepted can be made part of a URL as it is.
func FuzzParseReference(f *testing.F) {
	for _, s := range []string{"ghcr.io/a:b@" + someDigest, "[::1]:5/a", "docker.io/a", "a.b/c/d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := oci.ParseReference(s)
		if err != nil {
			return
		}
		if strings.ContainsAny(r.Registry+r.Repository+r.Tag+r.Digest, "?#% \\@\n\x00") && r.Digest == "" {
			t.Errorf("%q became %+v", s, r)
		}
		if again, err := oci.ParseReference(r.String()); err != nil || again != r {
			t.Errorf("%q became %v, and that %v, %v", s, r, again, err)
		}
	})
}
