package open

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

func TestParse_UnderstandsFoldersAndBuckets(t *testing.T) {
	for text, want := range map[string]Location{
		"file:///var/lib/gleaner":      {Dir: "/var/lib/gleaner"},
		"file:///var/lib/gleaner/":     {Dir: "/var/lib/gleaner"},
		"file:///with%20space":         {Dir: "/with space"},
		"s3://archive":                 {Bucket: "archive"},
		"s3://archive/":                {Bucket: "archive"},
		"s3://archive/prod":            {Bucket: "archive", Prefix: "prod/"},
		"s3://archive/clusters/prod-1": {Bucket: "archive", Prefix: "clusters/prod-1/"},
	} {
		got, err := Parse(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s (-want +got):\n%s%v", text, diff, err)
		}
		if again, err := Parse(got.String()); again != got || err != nil {
			t.Errorf("%s is written %s, which is %+v, %v", text, got, again, err)
		}
		if got.Shared() != strings.HasPrefix(text, "s3:") {
			t.Errorf("%s: Shared is %t", text, got.Shared())
		}
	}
}

func TestParse_SaysWhatToWrite(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "write file:///FOLDER with an absolute path, or s3://BUCKET/PREFIX",
		"/var/lib/gleaner":          "write file:///FOLDER with an absolute path",
		"https://storage/archive":   "or s3://BUCKET/PREFIX",
		"gs://archive":              "or s3://BUCKET/PREFIX",
		"file://var/lib/gleaner":    "a folder needs three slashes",
		"file:///":                  "a folder needs three slashes",
		"file:relative":             "a folder needs three slashes",
		"file:///a?b=c":             "write them as %3F",
		"s3://":                     "is not the name of a bucket",
		"s3://key:secret@bucket/":   "credentials do not belong in it",
		"s3://archive/a//b":         "empty parts",
		"s3://archive/prod?region=": "the prefix may not have ?",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("error contains a secret: %v", err)
		}
	}
}

func TestStore_OpensAFolder(t *testing.T) {
	l := Location{Dir: filepath.Join(t.TempDir(), "archive")}
	if _, err := Reader(t.Context(), l); !errors.Is(err, archive.ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
	s, recovered, err := Store(t.Context(), l)
	if err != nil || recovered != "" {
		t.Fatal(recovered, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Reader(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("file:///var/lib/gleaner")
	f.Add("s3://archive/prod")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse(text)
		if err != nil {
			return
		}
		if l.Dir != "" && !filepath.IsAbs(l.Dir) || (l.Dir == "") == (l.Bucket == "") {
			t.Errorf("%q is %+v", text, l)
		}
		if again, err := Parse(l.String()); again != l || err != nil {
			t.Errorf("%q is written %s, which is %+v, %v", text, l, again, err)
		}
	})
}
