package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/gleanertest"
)

// asked is a question about a bucket that is to be deleted.
func asked(t *testing.T, spec string) gleaner.Request {
	t.Helper()
	r := gleanertest.Request(gleaner.Finalize)
	r.Policy.Settings = json.RawMessage(`{"endpoint":"https://s3.example.com"}`)
	body := `{"apiVersion":"example.com/v1","kind":"Bucket","metadata":{"name":"photos","namespace":"shop","uid":"u","resourceVersion":"7"},"spec":` + spec + `}`
	if err := json.Unmarshal([]byte(body), &r.Object); err != nil {
		t.Fatal(err)
	}
	return r
}

const wanted = `{"bucket":"photos","deletionPolicy":"Delete"}`

// storage answers a request by its method and what comes after the bucket's name.
type storage map[string]gleaner.HTTPResult

func (s storage) answer(intent gleaner.Intent) gleaner.Result {
	answer, ok := s[line(intent)]
	if !ok {
		return gleanertest.ErrorResult(gleaner.ErrorUnavailable, "nobody expects "+line(intent))
	}
	return gleaner.Result{HTTP: &answer}
}

func line(intent gleaner.Intent) string {
	rest := strings.TrimPrefix(intent.HTTP.URL, "https://s3.example.com/photos")
	return strings.TrimSpace(intent.HTTP.Method + " " + rest)
}

const (
	list      = "GET ?versions&max-keys=100"
	listOnce  = "GET ?list-type=2&max-keys=100"
	remaining = `<?xml version="1.0" encoding="UTF-8"?><ListVersionsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>photos</Name>` +
		`<Version><Key>a&amp;b/&#13;&lt;c&gt;</Key><VersionId>v1</VersionId><IsLatest>false</IsLatest></Version>` +
		`<DeleteMarker><Key>d</Key><VersionId>v2</VersionId></DeleteMarker></ListVersionsResult>`
	none = `<ListVersionsResult><Name>photos</Name></ListVersionsResult>`
	gone = `<Error><Code>NoSuchBucket</Code></Error>`
)

func TestFinalize(t *testing.T) {
	for claim, c := range map[string]struct {
		storage  storage
		decision gleaner.Decision
		reason   string
		asks     []string
	}{
		"an empty bucket is deleted": {
			storage{list: {Status: 200, Body: none}, "DELETE": {Status: 204}},
			gleaner.Done, "", []string{list, "DELETE"}},
		"a bucket that is gone is done with": {
			storage{list: {Status: 404, Body: gone}}, gleaner.Done, "the bucket does not exist", []string{list}},
		"a bucket that goes meanwhile is done with": {
			storage{list: {Status: 200, Body: none}, "DELETE": {Status: 404, Body: gone}},
			gleaner.Done, "the bucket does not exist", []string{list, "DELETE"}},
		"a 404 of somebody else is no proof": {
			storage{list: {Status: 404, Body: "<h1>Not found</h1>"}}, gleaner.Fail, "not a response of object storage", []string{list}},
		"a bucket that is written to is tried again": {
			storage{list: {Status: 200, Body: none}, "DELETE": {Status: 409, Body: `<Error><Code>BucketNotEmpty</Code></Error>`}},
			gleaner.Wait, "BucketNotEmpty", []string{list, "DELETE"}},
		"a storage that is down is waited for": {
			storage{list: {Status: 503, Body: "slow down"}}, gleaner.Wait, "503", []string{list}},
		"a storage that can't be reached is waited for": {storage{}, gleaner.Wait, "Unavailable", []string{list}},
		"a key that may not needs a human": {
			storage{list: {Status: 403, Body: `<Error><Code>AccessDenied</Code></Error>`}}, gleaner.Fail, "AccessDenied", []string{list}},
		"an object that is locked is waited for": {
			storage{
				list:           {Status: 200, Body: remaining},
				"POST ?delete": {Status: 200, Body: `<DeleteResult><Error><Key>d</Key><Code>AccessDenied</Code><Message>locked</Message></Error></DeleteResult>`},
			}, gleaner.Wait, "d: AccessDenied: locked", []string{list, "POST ?delete"}},
		"a storage without versions is asked for objects": {
			storage{list: {Status: 501}, listOnce: {Status: 200, Body: "<ListBucketResult/>"}, "DELETE": {Status: 204}},
			gleaner.Done, "", []string{list, listOnce, "DELETE"}},
	} {
		t.Run(claim, func(t *testing.T) {
			got, err := gleanertest.Finalize(finalizer, asked(t, wanted), c.storage.answer)
			if err != nil || got.Verdict.Decision != c.decision || !strings.Contains(got.Verdict.Reason, c.reason) {
				t.Errorf("got %+v, %v; want %s, %q", got.Verdict, err, c.decision, c.reason)
			}
			var asks []string
			for _, intent := range got.Intents {
				asks = append(asks, line(intent))
			}
			if !reflect.DeepEqual(asks, c.asks) {
				t.Errorf("asked for %q, want %q", asks, c.asks)
			}
		})
	}
}

func TestWhatIsListedIsDeletedBeforeTheNextList(t *testing.T) {
	lists := []string{remaining, remaining, none}
	var bodies []string
	got, err := gleanertest.Finalize(finalizer, asked(t, wanted), func(intent gleaner.Intent) gleaner.Result {
		response := gleaner.HTTPResult{Status: 200}
		switch intent.HTTP.Method {
		case "GET":
			response.Body, lists = lists[0], lists[1:]
		case "POST":
			bodies = append(bodies, intent.HTTP.Body+" "+intent.HTTP.Headers["X-Amz-Checksum-Crc32"])
		}
		return gleaner.Result{HTTP: &response}
	})
	if err != nil || got.Verdict.Decision != gleaner.Done || got.Rounds != 7 {
		t.Errorf("got %+v in %d rounds, %v", got.Verdict, got.Rounds, err)
	}
	body := "<Delete><Quiet>true</Quiet>" +
		"<Object><Key>a&#38;b/&#13;&#60;c&#62;</Key><VersionId>v1</VersionId></Object>" +
		"<Object><Key>d</Key><VersionId>v2</VersionId></Object></Delete> 2Rvn1Q=="
	if want := []string{body, body}; !reflect.DeepEqual(bodies, want) {
		t.Errorf("got  %q\nwant %q", bodies, want)
	}
}

func TestBucket_LargeOne_TakesSeveralAttempts(t *testing.T) {
	full := func(gleaner.Intent) gleaner.Result {
		return gleaner.Result{HTTP: &gleaner.HTTPResult{Status: 200, Body: remaining}}
	}
	got, err := gleanertest.Finalize(finalizer, asked(t, wanted), full)
	if err != nil || got.Verdict.Decision != gleaner.Wait || got.Verdict.State != nil {
		t.Errorf("got %+v, %v", got.Verdict, err)
	}
	again, err := gleanertest.Finalize(finalizer, got.Next, storage{list: {Status: 200, Body: none}, "DELETE": {Status: 204}}.answer)
	if err != nil || again.Verdict.Decision != gleaner.Done {
		t.Errorf("got %+v, %v", again.Verdict, err)
	}
}

func TestNothingIsAskedForAboutABucketThatStays(t *testing.T) {
	for spec, want := range map[string]gleaner.Decision{
		`{"bucket":"photos","deletionPolicy":"Retain"}`:          gleaner.Done,
		`{"bucket":"photos"}`:                                    gleaner.Done,
		`{"bucket":"a/../b","deletionPolicy":"Delete"}`:          gleaner.Fail,
		`{"bucket":"photos?versions","deletionPolicy":"Delete"}`: gleaner.Fail,
		`{"bucket":"..x","deletionPolicy":"Delete"}`:             gleaner.Fail,
		`{"bucket":"","deletionPolicy":"Delete"}`:                gleaner.Fail,
		`{"bucket":1,"deletionPolicy":"Delete"}`:                 gleaner.Fail,
	} {
		got, err := gleanertest.Finalize(finalizer, asked(t, spec), storage{}.answer)
		if err != nil || got.Verdict.Decision != want || len(got.Intents) != 0 {
			t.Errorf("%s: got %+v, %v, %v; want %s", spec, got.Verdict, got.Intents, err, want)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for settings, want := range map[string]gleaner.Decision{
		`{"endpoint":"https://s3.example.com"}`:       gleaner.Valid,
		`{"endpoint":"https://example.com/s3"}`:       gleaner.Valid,
		`{"endpoint":"https://s3.example.com/"}`:      gleaner.Invalid,
		`{"endpoint":"s3.example.com"}`:               gleaner.Invalid,
		`{"endpoint":"https://s3.example.com/?x"}`:    gleaner.Invalid,
		`{"endpoint":"https://x","region":"nowhere"}`: gleaner.Invalid,
		`{}`: gleaner.Invalid,
	} {
		r := gleanertest.Request(gleaner.Validate)
		r.Policy.Settings = json.RawMessage(settings)
		got, err := gleanertest.Call(validate, r)
		if err != nil || got.Verdict.Decision != want {
			t.Errorf("%s: got %+v, %v; want %s", settings, got.Verdict, err, want)
		}
	}
}

func TestKeysSurviveXML(t *testing.T) {
	for _, key := range []string{"a", "a&b", "&amp;", "<Key>", `"'`, "line\nfeed\r\x01", "grün/猫", "a;b&"} {
		if got := text("<Key>"+escaped(key)+"</Key>", "Key"); got != key {
			t.Errorf("%q became %q", key, got)
		}
	}
	for written, want := range map[string]string{"&lt;&#x41;&#65;&apos;": "<AA'", "a&b": "a&b", "&none;": "&none;", "&#xzz;": "&#xzz;"} {
		if got := unescaped(written); got != want {
			t.Errorf("%q reads as %q", written, got)
		}
	}
	if got := listed("<Contents><Key>a</Key></Contents><Contents><Key>b"); !reflect.DeepEqual(got, []version{{key: "a"}}) {
		t.Errorf("a list that is cut off reads as %v", got)
	}
}
