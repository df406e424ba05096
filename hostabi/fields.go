package hostabi

import (
	"encoding/json"
	"strconv"
	"strings"
)

// object reads the fields of one JSON object. What is missing or wrong gives a
// zero, and wrong also an error in the parser.
type object struct {
	*parser
	at     *path
	fields []field
}

// object opens an object that may have these fields and no others.
func (p *parser) object(at *path, v value, known ...string) object {
	if v.kind != kindObject {
		p.fail(at, "is %s: write an object", v.kind)
	}
	o := object{p, at, v.fields()}
	for _, f := range o.fields {
		if p.err != nil {
			break // only the first error counts, and finding words for each of 100,000 takes half a minute
		}
		if contains(known, f.name) {
			if f.value.kind == kindNull {
				p.fail(at.field(f.name), "is null: leave it out, or write a value")
			}
			continue
		}
		p.fail(at.field(f.name), "is unknown: %s", suggest(f.name, known))
	}
	return o
}

// suggest says what to write in place of an unknown name.
func suggest(name string, known []string) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
	}
	for _, k := range known {
		if plain(k) == plain(name) {
			return "write it as " + k
		}
	}
	return "leave it out, or write " + orList(known)
}

// get gives a field that is there and not null.
func (o object) get(name string) (value, bool) {
	for _, f := range o.fields {
		if f.name == name {
			return f.value, f.value.kind != kindNull
		}
	}
	return value{}, false
}

// of gives a field if it is of a kind; of any other it is an error.
func (o object) of(name string, want kind) (value, bool) {
	v, ok := o.get(name)
	if ok && v.kind != want {
		o.fail(o.at.field(name), "is %s: write %s", v.kind, want)
		return value{}, false
	}
	return v, ok
}

// need reports a field that has to be there and is not.
func (o object) need(name string) {
	if _, ok := o.get(name); !ok {
		o.fail(o.at.field(name), "is missing: write it")
	}
}

// text reads a string that may be missing.
func (o object) text(name string) string {
	v, ok := o.of(name, kindString)
	if !ok {
		return ""
	}
	return v.text()
}

// needText reads a string that must be there, and not empty.
func (o object) needText(name string) string {
	o.need(name)
	text := o.text(name)
	o.check(name, text != "", "write one that is not empty")
	return text
}

// check reports a field that is there and does not hold what it should.
func (o object) check(name string, ok bool, instead string) {
	v, there := o.get(name)
	if !there || ok {
		return
	}
	was := v.kind.String()
	if v.kind == kindString {
		was = quote(v.text())
	}
	o.fail(o.at.field(name), "is %s: %s", was, instead)
}

// longest bounds a string, in bytes.
func (o object) longest(name string, limit int) {
	if n := len(o.text(name)); n > limit {
		o.fail(o.at.field(name), "has %d bytes: write at most %d", n, limit)
	}
}

// oneOf reads a string that may be missing, and is otherwise one of these.
func (o object) oneOf(name string, known ...string) string {
	v, ok := o.of(name, kindString)
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

func (o object) needOneOf(name string, known ...string) string {
	o.need(name)
	return o.oneOf(name, known...)
}

// integer reads a whole number between two others; false if there is none.
func (o object) integer(name string, least, most int64) (int64, bool) {
	v, ok := o.of(name, kindNumber)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v.raw), 10, 64)
	if err != nil || n < least || n > most {
		o.fail(o.at.field(name), "is %s: write a whole number from %d to %d", short(v.raw), least, most)
		return 0, false
	}
	return n, true
}

// gracePeriod reads seconds, up to what fits into 32 bits.
func (o object) gracePeriod() *int64 {
	n, ok := o.integer("gracePeriodSeconds", 0, 1<<31-1)
	if !ok {
		return nil
	}
	return &n
}

func (o object) duration(name string) Duration {
	v, ok := o.of(name, kindString)
	if !ok {
		return 0
	}
	d, err := ParseDuration(v.text())
	if err != nil {
		o.fail(o.at.field(name), "is wrong: %s", err.Error())
	}
	return d
}

// list reads an array that may be missing, and is otherwise not empty.
func (o object) list(name string, limit int) []value {
	v, ok := o.of(name, kindArray)
	if !ok {
		return nil
	}
	items := v.items(limit + 1)
	switch {
	case len(items) == 0:
		o.fail(o.at.field(name), "is empty: leave it out, or write one at least")
	case len(items) > limit:
		o.fail(o.at.field(name), "has more items than %d: write no more than that", limit)
		return nil
	}
	return items
}

// raw reads a document of any shape.
func (o object) raw(name string) json.RawMessage {
	v, ok := o.get(name)
	if !ok {
		return nil
	}
	return compact(v.raw)
}

// short is a number for a message.
func short(raw []byte) string {
	if len(raw) > 32 {
		return string(raw[:32]) + "…"
	}
	return string(raw)
}
