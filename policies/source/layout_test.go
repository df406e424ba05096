package source_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/oci"
)

func TestImage_OfAnyLayoutIsUnderstood(t *testing.T) {
	code, text := string(module("x")), regoText
	tarball := string(archive(t, "README.md", "hello", "opt/a.wasm", code, "opt/._a.wasm", "junk", "etc/policy.rego", text))
	several := []source.File{{Name: "a.rego", Data: []byte(text)}, {Name: "b.rego", Data: []byte("package gleaner\n")}}
	rego, err := oci.PackRego(several)
	if err != nil {
		t.Fatal(err)
	}
	for claim, c := range map[string]struct {
		artifact oci.Artifact
		language source.Language
		want     []source.File
	}{
		"the CNCF's layer of WebAssembly":  {layers(t, "application/wasm", code), source.Wasm, files("module.wasm", code)},
		"one that is compressed":           {layers(t, "application/wasm", string(zipped(t, []byte(code)))), source.Wasm, files("module.wasm", code)},
		"what wasm-to-oci pushes":          {layers(t, "application/vnd.wasm.content.layer.v1+wasm", code), source.Wasm, files("module.wasm", code)},
		"beside layers of another kind":    {layers(t, "text/plain", "hello", "application/wasm", code), source.Wasm, files("module.wasm", code)},
		"an image, of one layer of tar":    {layers(t, "application/vnd.oci.image.layer.v1.tar", tarball), source.Wasm, files("a.wasm", code)},
		"one that is compressed with gzip": {layers(t, "application/vnd.oci.image.layer.v1.tar+gzip", string(zipped(t, []byte(tarball)))), source.Wasm, files("a.wasm", code)},
		"an image of docker build":         {layers(t, "application/vnd.docker.image.rootfs.diff.tar.gzip", string(zipped(t, []byte(tarball)))), source.Wasm, files("a.wasm", code)},
		"an image of several layers": {layers(t, "application/vnd.oci.image.layer.v1.tar", string(archive(t, "etc/os-release", "x")),
			"application/vnd.oci.image.layer.v1.tar", tarball), source.Wasm, files("a.wasm", code)},
		"Rego in an image":      {layers(t, "application/vnd.oci.image.layer.v1.tar", tarball), source.Rego, files("policy.rego", text)},
		"Rego beside its tests": {layers(t, "application/vnd.oci.image.layer.v1.tar", string(archive(t, "a.rego", text, "a_test.rego", "junk"))), source.Rego, files("a.rego", text)},
		"several files of Rego": {rego, source.Rego, several},
		"Rego with odd titles":  {titled(t, "..", text, "x/y.rego", text+"#", "z_test.rego", "junk"), source.Rego, append(files("policy.rego", text), files("y.rego", text+"#")...)},
		"what conftest pushes":  {layers(t, "application/vnd.cncf.openpolicyagent.policy.layer.v1+rego", text), source.Rego, files("policy.rego", text)},
	} {
		t.Run(claim, func(t *testing.T) {
			server := registered(t)
			s := wasmImage(server.push(t, c.artifact, oci.Credential{}))
			s.Language = c.language
			got := fetch(t, fetcher(t, "", source.Limits{}), s)
			if diff := cmp.Diff(c.want, got.Files); diff != "" {
				t.Error(diff)
			}
			if got.Digest != source.Digest(c.want) || !got.Pinned {
				t.Errorf("its digest is %s, pinned: %t", got.Digest, got.Pinned)
			}
		})
	}
}

func TestImage_ReportsMissingModule(t *testing.T) {
	const tarType = "application/vnd.oci.image.layer.v1.tar"
	code, text := string(module("x")), regoText
	tarball := func(pairs ...string) string { return string(archive(t, pairs...)) }
	many := make([]string, 0, 300)
	for i := range 30 {
		many = append(many, "application/wasm", code+string(rune('a'+i)))
	}
	limits := source.Limits{Download: 100_000, Module: 20_000, Unpacked: 300_000, Entries: 50, Manifest: 5000, Layers: 20, Files: 3}
	for claim, c := range map[string]struct {
		artifact oci.Artifact
		language source.Language
		reason   source.Reason
		says     string
	}{
		"two modules":            {layers(t, "application/wasm", code, "application/wasm", code+"y"), source.Wasm, source.InvalidArtifact, "several modules"},
		"two in an archive":      {layers(t, tarType, tarball("a.wasm", code, "b.wasm", code)), source.Wasm, source.InvalidArtifact, "several modules"},
		"two in two archives":    {layers(t, tarType, tarball("a.wasm", code), tarType, tarball("a.wasm", code, "b", "")), source.Wasm, source.InvalidArtifact, "several modules"},
		"none":                   {layers(t, tarType, tarball("a.txt", "x")), source.Wasm, source.InvalidArtifact, "no file *.wasm"},
		"only tests":             {layers(t, tarType, tarball("a_test.rego", "x")), source.Rego, source.InvalidArtifact, "no file *.rego"},
		"another language":       {layers(t, "application/wasm", code), source.Rego, source.InvalidArtifact, "gleaner module push"},
		"another kind":           {layers(t, "application/vnd.oci.image.layer.v1.tar+zstd", code), source.Wasm, source.InvalidArtifact, "tar+zstd"},
		"no archive":             {layers(t, tarType, strings.Repeat("x", 600)), source.Wasm, source.InvalidArtifact, "not an archive, or is damaged"},
		"half an archive":        {layers(t, tarType, tarball("a.wasm", code+strings.Repeat("x", 2000))[:1000]), source.Wasm, source.InvalidArtifact, "damaged"},
		"half a gzip":            {layers(t, tarType, string(zipped(t, []byte(tarball("a.wasm", code)))[:30])), source.Wasm, source.InvalidArtifact, "damaged"},
		"a removed file":         {layers(t, tarType, tarball("a.wasm", code), tarType, tarball(".wh.a.wasm", "")), source.Wasm, source.InvalidArtifact, "FROM scratch"},
		"two files of one name":  {layers(t, tarType, tarball("x/a.rego", text, "y/a.rego", text)), source.Rego, source.InvalidArtifact, `several files "a.rego"`},
		"many files of Rego":     {layers(t, tarType, tarball("a.rego", text, "b.rego", text, "c.rego", text, "d.rego", text)), source.Rego, source.TooLarge, "more than 3 files"},
		"a large file":           {layers(t, tarType, tarball("a.wasm", strings.Repeat("x", 20_001))), source.Wasm, source.TooLarge, "limit of 20000 bytes"},
		"a large module":         {layers(t, "application/wasm", code+strings.Repeat("x", 20_001)), source.Wasm, source.TooLarge, "limit of 20000 bytes"},
		"a bomb":                 {layers(t, "application/wasm", string(zipped(t, make([]byte, 1<<20)))), source.Wasm, source.TooLarge, "decompressed"},
		"a bomb in an archive":   {layers(t, tarType, string(zipped(t, archive(t, "junk", strings.Repeat("x", 1<<20))))), source.Wasm, source.TooLarge, "limit of 300000 bytes, decompressed"},
		"a bomb of many layers":  {layers(t, bombs(t, tarType)...), source.Wasm, source.TooLarge, "limit of 300000 bytes, decompressed"},
		"a large image":          {layers(t, tarType, tarball("x", strings.Repeat("x", 60_000)), tarType, tarball("y", strings.Repeat("x", 60_000))), source.Wasm, source.TooLarge, "limit of 100000 bytes"},
		"many files":             {layers(t, tarType, tarball(strings.Split(strings.Repeat("f,x,", 51)+"a.wasm,x", ",")...)), source.Wasm, source.TooLarge, "more than 50 files"},
		"many layers":            {layers(t, many[:42]...), source.Wasm, source.TooLarge, "more than 20 layers"},
		"a large manifest":       {oci.Artifact{Manifest: encoded(t, strings.Repeat("x", 6000)), MediaType: "x/y"}, source.Wasm, source.TooLarge, "limit of 5000 bytes"},
		"a manifest of old":      {oci.Artifact{Manifest: []byte(`{"schemaVersion": 1, "fsLayers": []}`), MediaType: "x/y"}, source.Wasm, source.InvalidArtifact, "neither an image manifest nor an index"},
		"nonsense":               {oci.Artifact{Manifest: []byte(`nonsense`), MediaType: "x/y"}, source.Wasm, source.InvalidArtifact, "is invalid"},
		"a size below nothing":   {named(t, -1, oci.Digest(nil)), source.Wasm, source.InvalidArtifact, "of -1 bytes"},
		"a blob that is nowhere": {named(t, 5, oci.Digest([]byte("hello"))), source.Wasm, source.NotFound, "pull the blob"},
		"another kind of digest": {named(t, 5, "sha512:"+strings.Repeat("00", 64)), source.Wasm, source.InvalidArtifact, "sha256"},
	} {
		t.Run(claim, func(t *testing.T) {
			server := registered(t)
			s := wasmImage(server.push(t, c.artifact, oci.Credential{}))
			s.Language = c.language
			refused(t, fetcher(t, "", limits), s, c.reason, c.says, s.Image)
		})
	}
}

func TestIndex_GivesTheImageForWasm(t *testing.T) {
	server := registered(t)
	put := func(entries ...any) source.Source {
		a := oci.Artifact{MediaType: "application/vnd.oci.image.index.v1+json"}
		a.Manifest = encoded(t, map[string]any{"schemaVersion": 2, "mediaType": a.MediaType, "manifests": entries})
		return wasmImage(server.push(t, a, oci.Credential{}))
	}
	entry := func(system, architecture, filling string) any {
		image := server.pushWasm(t, module(filling))
		_, digest, _ := strings.Cut(image, "@")
		e := map[string]any{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 500}
		if system != "" {
			e["platform"] = map[string]string{"os": system, "architecture": architecture}
		}
		return e
	}
	linux, p1, p2 := entry("linux", "amd64", "linux"), entry("wasip1", "wasm", "p1"), entry("wasip2", "wasm", "p2")
	attestation := entry("unknown", "unknown", "attestation")
	f := fetcher(t, t.TempDir(), source.Limits{Layers: 8})
	for claim, c := range map[string]struct {
		source source.Source
		want   string
	}{
		"that for wasm":                  {put(linux, p1), "p1"},
		"that for the WASI there is":     {put(p2, p1), "p1"},
		"another WASI, if it is alone":   {put(linux, p2), "p2"},
		"the only one":                   {put(linux), "linux"},
		"the only one, with attestation": {put(linux, attestation), "linux"},
		"the only one, of no platform":   {put(entry("", "", "plain")), "plain"},
	} {
		t.Run(claim, func(t *testing.T) {
			got := fetch(t, f, c.source)
			only(t, got, module(c.want))
			if !got.Pinned || got.Origin != c.source.Image {
				t.Errorf("pinned: %t, from %s", got.Pinned, got.Origin)
			}
		})
	}
	refused(t, f, put(linux, entry("linux", "arm64", "arm")), source.InvalidArtifact, "linux/amd64, linux/arm64", "use the digest of that image")
	refused(t, f, put(p1, entry("wasip1", "wasm", "p1 too")), source.InvalidArtifact, "wasip1/wasm, wasip1/wasm")
	refused(t, f, put(attestation), source.InvalidArtifact, "an index of nothing")
	refused(t, f, put(linux, linux, linux, linux, linux, linux, linux, linux, linux), source.TooLarge, "more than 8 entries")

	inner := put(linux)
	_, digest, _ := strings.Cut(inner.Image, "@")
	refused(t, f, put(map[string]any{"mediaType": "application/vnd.oci.image.index.v1+json", "digest": digest, "size": 500}),
		source.InvalidArtifact, "contains another index")
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, "a.wasm", "\x00asm"), true)
	f.Add(archive(f, "a.rego", regoText, "b/c.rego", ""), false)
	f.Add(zipped(f, archive(f, ".wh.x", "")), true)
	f.Add([]byte{0x1f, 0x8b}, false)
	limits := source.Limits{Module: 1000, Rego: 1000, Files: 3, Unpacked: 20_000, Entries: 10}
	f.Fuzz(func(t *testing.T, data []byte, wasm bool) {
		language := source.Rego
		if wasm {
			language = source.Wasm
		}
		got, err := source.Unpack(language, data, limits)
		if err != nil {
			return
		}
		if len(got) == 0 || len(got) > 3 || wasm && len(got) != 1 {
			t.Errorf("%d files", len(got))
		}
		for _, file := range got {
			if len(file.Data) > 1000 || strings.Contains(file.Name, "/") || !strings.HasSuffix(file.Name, "."+string(language)) {
				t.Errorf("%q of %d bytes", file.Name, len(file.Data))
			}
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"layers": [{"mediaType": "application/wasm", "size": 5, "digest": "` + oci.Digest(nil) + `"}]}`))
	f.Add([]byte(`{"manifests": [{"platform": {"os": "wasip1", "architecture": "wasm"}, "digest": "` + oci.Digest(nil) + `"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, language := range []source.Language{source.Wasm, source.Rego} {
			if source.Parse(language, data) == nil && !json.Valid(data) {
				t.Errorf("%q is a manifest", data)
			}
		}
	})
}

func files(name, content string) []source.File {
	return []source.File{{Name: name, Data: []byte(content)}}
}

// titled makes an artifact of Rego, in pairs of title and content.
func titled(t *testing.T, pairs ...string) oci.Artifact {
	t.Helper()
	var all []source.File
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, files(pairs[i], pairs[i+1])...)
	}
	a, err := oci.PackRego(all)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// named makes an artifact whose layer was never pushed.

// bombs are layers none of which is too large by itself.
