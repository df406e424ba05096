package gleanertest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/sdk/go/gleanertest"
)

type common struct {
	Owner string `json:"owner"`
}

type limits struct {
	common
	Size    int               `json:"size" schema:"required,minimum=1,maximum=10.5" doc:"Size in GiB."`
	Mode    string            `json:"mode,omitempty" schema:"enum=Keep|Wait"`
	Names   []string          `json:"names"`
	Labels  map[string]bool   `json:"labels"`
	Until   *time.Time        `json:"until"`
	Ratio   float64           `json:"ratio"`
	Count   uint              `json:"count"`
	Quoted  int               `json:"quoted,string"`
	Nested  struct{ A []any } `json:"nested"`
	Raw     json.RawMessage   `json:"raw"`
	Data    []byte            `json:"data"`
	Ignored string            `json:"-"`
	private string
}

func TestSettingsSchema_OfEachType(t *testing.T) {
	_ = limits{}.private
	got, err := gleanertest.SettingsSchema(&limits{})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "additionalProperties": false,
  "properties": {
    "count": {
      "minimum": 0,
      "type": "integer"
    },
    "data": {
      "contentEncoding": "base64",
      "type": "string"
    },
    "labels": {
      "additionalProperties": {
        "type": "boolean"
      },
      "type": "object"
    },
    "mode": {
      "enum": [
        "Keep",
        "Wait"
      ],
      "type": "string"
    },
    "names": {
      "items": {
        "type": "string"
      },
      "type": "array"
    },
    "nested": {
      "additionalProperties": false,
      "properties": {
        "A": {
          "items": {},
          "type": "array"
        }
      },
      "type": "object"
    },
    "owner": {
      "type": "string"
    },
    "quoted": {
      "type": "string"
    },
    "ratio": {
      "type": "number"
    },
    "raw": {},
    "size": {
      "description": "Size in GiB.",
      "maximum": 10.5,
      "minimum": 1,
      "type": "integer"
    },
    "until": {}
  },
  "required": [
    "size"
  ],
  "type": "object"
}
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

type recursive struct {
	Next *recursive `json:"next"`
}

func TestSettingsSchema_SaysWhatIsWrong(t *testing.T) {
	for want, settings := range map[string]any{
		"settings are a struct": []string{},
		"contains itself":       recursive{},
		"Keys: map[int]string":  struct{ Keys map[int]string }{},
		"F: func() can't be in": struct{ F func() }{},
		`the unknown part "require"`: struct {
			A int `schema:"require"`
		}{},
		"minimum=small: write a number": struct {
			A int `schema:"minimum=small"`
		}{},
	} {
		if got, err := gleanertest.SettingsSchema(settings); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: %s, %v; want %q", settings, got, err, want)
		}
	}
}

func TestCheckSettingsSchema_WritesTheFileIfAsked(t *testing.T) {
	folder := t.TempDir()
	before, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chdir(folder); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chdir(before) }()
	t.Setenv("UPDATE_SCHEMA", "1")
	gleanertest.CheckSettingsSchema(t, limits{})
	t.Setenv("UPDATE_SCHEMA", "")
	gleanertest.CheckSettingsSchema(t, limits{})
	if err := os.WriteFile(filepath.Join(folder, gleanertest.SchemaFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	failed := &recorder{TB: t}
	func() {
		defer func() { _ = recover() }()
		gleanertest.CheckSettingsSchema(failed, limits{})
	}()
	if !strings.Contains(failed.message, "run the test with UPDATE_SCHEMA=1") {
		t.Errorf("with another file, it says %q", failed.message)
	}
}

// recorder records why a test fails.
type recorder struct {
	testing.TB
	message string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.message = strings.TrimSpace(fmt.Sprintf(format, args...))
	panic("stopped")
}
