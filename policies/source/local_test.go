package source_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/policies/source"
)

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func TestFetch_TakesInlineRegoAsItIs(t *testing.T) {
	got := fetch(t, fetcher(t, "", source.Limits{}), source.Source{Language: source.Rego, Inline: regoText})
	want := source.Fetched{
		Files:  []source.File{{Name: "policy.rego", Data: []byte(regoText)}},
		Digest: sum([]byte(regoText)), Pinned: true, Origin: "inline",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFetch_TakesAKeyOfAConfigMap(t *testing.T) {
	code := module("x")
	config := &source.ConfigMap{
		Name: "policies/modules",
		Data: map[string]string{"text.rego": regoText},
		BinaryData: map[string][]byte{
			"plain.wasm": code, "zipped.wasm.gz": zipped(t, code), "zipped.rego": zipped(t, []byte(regoText)),
		},
	}
	f := fetcher(t, "", source.Limits{})
	for key, c := range map[string]struct {
		language source.Language
		want     []byte
	}{
		"text.rego":      {source.Rego, []byte(regoText)},
		"zipped.rego":    {source.Rego, []byte(regoText)},
		"plain.wasm":     {source.Wasm, code},
		"zipped.wasm.gz": {source.Wasm, code},
	} {
		t.Run(key, func(t *testing.T) {
			of := *config
			of.Key = key
			s := source.Source{Language: c.language, ConfigMap: &of}
			got := fetch(t, f, s)
			only(t, got, c.want)
			want := source.Fetched{
				Files: got.Files, Digest: sum(c.want), Pin: "sha256: " + sum(c.want),
				Origin: "the key " + key + " of the ConfigMap policies/modules",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("without a digest: %s", diff)
			}
			s.SHA256 = sum(c.want)
			if got := fetch(t, f, s); !got.Pinned || got.Pin != "" {
				t.Errorf("with a digest: %+v", got)
			}
			s.SHA256 = sum(nil)
			refused(t, f, s, source.DigestMismatch, "ConfigMap policies/modules", sum(c.want), sum(nil))
		})
	}
}

func TestFetch_ReportsInvalidSource(t *testing.T) {
	limits := source.Limits{Module: 1 << 20, Rego: 1000, Download: 2 << 20}
	bomb := zipped(t, make([]byte, 64<<20))
	f := fetcher(t, "", limits)
	data := func(language source.Language, content []byte) source.Source {
		return source.Source{Language: language, ConfigMap: &source.ConfigMap{
			Name: "ns/c", Key: "k", BinaryData: map[string][]byte{"k": content, "other": nil},
		}}
	}
	missing := data(source.Wasm, nil)
	missing.ConfigMap.Key = "K"
	for claim, c := range map[string]struct {
		source source.Source
		reason source.Reason
		says   string
	}{
		"another language": {source.Source{Language: "lua", Inline: "x"}, source.InvalidReference, "use wasm or rego"},
		"no place":         {source.Source{Language: source.Rego}, source.InvalidReference, "has 0 origins"},
		"two places":       {source.Source{Language: source.Rego, Inline: "x", URL: "https://x"}, source.InvalidReference, "has 2 origins"},
		"inline bytes":     {source.Source{Language: source.Wasm, Inline: "x"}, source.InvalidReference, "only Rego can be inline"},
		"a short digest":   {source.Source{Language: source.Rego, Inline: "x", SHA256: "12"}, source.InvalidReference, "use 64 hex digits"},
		"another digest":   {source.Source{Language: source.Rego, Inline: "x", SHA256: "sha256:" + sum(nil)}, source.InvalidReference, "use 64 hex digits"},
		"capital letters":  {source.Source{Language: source.Rego, Inline: "x", SHA256: strings.ToUpper(sum(nil))}, source.InvalidReference, "in lower case"},
		"much inline":      {source.Source{Language: source.Rego, Inline: strings.Repeat("x", 1001)}, source.TooLarge, "limit of 1000 bytes"},
		"no such key":      {missing, source.NotFound, `no key "K": use one of k, other`},
		"no keys":          {source.Source{Language: source.Rego, ConfigMap: &source.ConfigMap{Name: "ns/c", Key: "k"}}, source.NotFound, "it is empty"},
		"a bomb":           {data(source.Wasm, bomb), source.TooLarge, "limit of 1048576 bytes, decompressed"},
		"a large module":   {data(source.Wasm, make([]byte, 1<<20+1)), source.TooLarge, "limit of 1048576 bytes"},
		"a larger one":     {data(source.Wasm, make([]byte, 2<<20+1)), source.TooLarge, "limit of 2097152 bytes"},
		"a large policy":   {data(source.Rego, make([]byte, 1001)), source.TooLarge, "limit of 1000 bytes"},
		"half a gzip":      {data(source.Wasm, zipped(t, module("x"))[:20]), source.InvalidArtifact, "is damaged"},
		"a gzip's head":    {data(source.Wasm, []byte{0x1f, 0x8b}), source.InvalidArtifact, "is damaged"},
		"text for wasm":    {data(source.Wasm, []byte("<!DOCTYPE html>")), source.InvalidArtifact, `begins with "<!DOCTYPE html>"`},
		"wasm for text":    {data(source.Rego, []byte("\x00asm\xff")), source.InvalidArtifact, "not UTF-8 text"},
		"nothing":          {data(source.Wasm, nil), source.InvalidArtifact, "not WebAssembly"},
	} {
		t.Run(claim, func(t *testing.T) {
			if e := refused(t, f, c.source, c.reason, c.says); e.Temporary {
				t.Error("it is said to help to try again")
			}
		})
	}
}

func TestDigest_OfSeveralFilesIsWhatTheShellSays(t *testing.T) {
	// printf a >a.rego; printf b >b.rego; sha256sum a.rego b.rego | sha256sum
	files := []source.File{{Name: "a.rego", Data: []byte("a")}, {Name: "b.rego", Data: []byte("b")}}
	lines := sum([]byte("a")) + "  a.rego\n" + sum([]byte("b")) + "  b.rego\n"
	if got := source.Digest(files); got != sum([]byte(lines)) {
		t.Errorf("got %s", got)
	}
}
