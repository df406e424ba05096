package hostabi

import (
	"encoding/json"
	"strconv"
	"strings"
)

// object reads the fields of a JSON object. A missing or invalid field reads as the
// zero value; an invalid one also sets the error of the parser.
type object struct {
	*parser
	at     *path
	fields []field
}

// object returns the object v, which may have no fields other than known.
func (p *parser) object(at *path, v value, known ...string) object {
	if v.kind != kindObject {
		p.fail(at, "is %s: write an object", v.kind)
	}
	o := object{p, at, v.fields()}
	for _, f := range o.fields {
		if p.err != nil {
			break // only the first error is kept, and formatting 100,000 errors takes half a minute
		}
		if contains(known, f.name) {
			if f.value.kind == kindNull {
				p.fail(at.field(f.name), "is null: remove it, or write a value")
			}
			continue
		}
		p.fail(at.field(f.name), "is unknown: %s", suggest(f.name, known))
	}
	return o
}

// suggest says what to write instead of an unknown name.
func suggest(name string, known []string) string {
	normalize := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
	}
	for _, k := range known {
		if normalize(k) == normalize(name) {
			return "write it as " + k
		}
	}
	return "remove it, or write " + orList(known)
}

// get returns a field, and whether it is present and not null.
func (o object) get(name string) (value, bool) {
	for _, f := range o.fields {
		if f.name == name {
			return f.value, f.value.kind != kindNull
		}
	}
	return value{}, false
}

// ofKind returns a field of kind want. A field of another kind is an error.
func (o object) ofKind(name string, want kind) (value, bool) {
	v, ok := o.get(name)
	if ok && v.kind != want {
		o.fail(o.at.field(name), "is %s: write %s", v.kind, want)
		return value{}, false
	}
	return v, ok
}

// require fails if a field is missing or null.
func (o object) require(name string) {
	if _, ok := o.get(name); !ok {
		o.fail(o.at.field(name), "is required")
	}
}

// text returns an optional string.
func (o object) text(name string) string {
	v, ok := o.ofKind(name, kindString)
	if !ok {
		return ""
	}
	return v.text()
}

// requiredText returns a required string that is not empty.
func (o object) requiredText(name string) string {
	o.require(name)
	text := o.text(name)
	o.check(name, text != "", "write a value that is not empty")
	return text
}

// check fails if a field is present and ok is false.
func (o object) check(name string, ok bool, advice string) {
	v, present := o.get(name)
	if !present || ok {
		return
	}
	actual := v.kind.String()
	if v.kind == kindString {
		actual = quote(v.text())
	}
	o.fail(o.at.field(name), "is %s: %s", actual, advice)
}

// checkMaxBytes limits the length of a string, in bytes.
func (o object) checkMaxBytes(name string, limit int) {
	if n := len(o.text(name)); n > limit {
		o.fail(o.at.field(name), "has %d bytes: write at most %d", n, limit)
	}
}

// oneOf returns an optional string, which is one of known.
func (o object) oneOf(name string, known ...string) string {
	v, ok := o.ofKind(name, kindString)
	if !ok {
		return ""
	}
	text := v.text()
	if !contains(known, text) {
		o.fail(o.at.field(name), "is %s: write %s", quote(text), orList(known))
		return ""
	}
	return text
}

func (o object) requiredOneOf(name string, known ...string) string {
	o.require(name)
	return o.oneOf(name, known...)
}

// integer returns an optional whole number within bounds, and whether it is
// present.
func (o object) integer(name string, minimum, maximum int64) (int64, bool) {
	v, ok := o.ofKind(name, kindNumber)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v.raw), 10, 64)
	if err != nil || n < minimum || n > maximum {
		o.fail(o.at.field(name), "is %s: write a whole number from %d to %d", shorten(v.raw), minimum, maximum)
		return 0, false
	}
	return n, true
}

// gracePeriod returns gracePeriodSeconds, which fits into 32 bits.
func (o object) gracePeriod() *int64 {
	n, ok := o.integer("gracePeriodSeconds", 0, 1<<31-1)
	if !ok {
		return nil
	}
	return &n
}

// boolean returns an optional boolean.
func (o object) boolean(name string) bool {
	v, ok := o.ofKind(name, kindBool)
	return ok && string(v.raw) == "true"
}

func (o object) duration(name string) Duration {
	v, ok := o.ofKind(name, kindString)
	if !ok {
		return 0
	}
	d, err := ParseDuration(v.text())
	if err != nil {
		o.fail(o.at.field(name), "is invalid: %s", err.Error())
	}
	return d
}

// list returns an optional array, which is not empty.
func (o object) list(name string, limit int) []value {
	v, ok := o.ofKind(name, kindArray)
	if !ok {
		return nil
	}
	return o.items(o.at.field(name), v, limit)
}

// items returns the items of an array, which is not empty.
func (p *parser) items(at *path, v value, limit int) []value {
	if v.kind != kindArray {
		p.fail(at, "is %s: write an array", v.kind)
		return nil
	}
	items := v.items(limit + 1)
	switch {
	case len(items) == 0:
		p.fail(at, "is empty: remove it, or write at least one item")
	case len(items) > limit:
		p.fail(at, "has more than %d items: remove some", limit)
		return nil
	}
	return items
}

// raw returns a field with any JSON value.
func (o object) raw(name string) json.RawMessage {
	v, ok := o.get(name)
	if !ok {
		return nil
	}
	return compact(v.raw)
}

// shorten shortens a number for a message.
func shorten(raw []byte) string {
	if len(raw) > 32 {
		return string(raw[:32]) + "…"
	}
	return string(raw)
}
