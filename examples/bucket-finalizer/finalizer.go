package main

import (
	"strconv"
	"strings"
	"time"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/finalize"
)

const (
	// perPage is how many objects are listed, and then deleted, at once.
	perPage = 100

	// perAttempt is how many bytes of lists are enough for an attempt. Each round
	// reads all that came before it anew, which costs fuel.
	perAttempt = 64 << 10
)

// settings are what users of the finalizer may set.
type settings struct {
	Endpoint string `json:"endpoint"` // of the storage, without a bucket: https://s3.example.com
}

// bucket is what the finalizer reads of an object.
type bucket struct {
	Spec struct {
		Bucket         string `json:"bucket"`
		DeletionPolicy string `json:"deletionPolicy"`
	} `json:"spec"`
}

// finalizer may be asked again at any point, also about what it has done: there is
// nothing to remember, since what is left to be done is what is left in the bucket.
func finalizer(r gleaner.Request) (gleaner.Verdict, error) {
	return finalize.Run(r, func(s *finalize.Steps) {
		set, problem := settingsOf(r)
		var b bucket
		if err := r.Object.Decode(&b); err != nil {
			s.Fail(err.Error())
		}
		switch {
		case b.Spec.DeletionPolicy != "Delete":
			s.Done("its deletionPolicy is not Delete: the bucket stays")
		case problem != "":
			s.Fail(problem)
		case !isBucketName(b.Spec.Bucket):
			s.Fail("its spec.bucket is no name of a bucket")
		}
		url := set.Endpoint + "/" + b.Spec.Bucket
		empty(s, url)
		remove(s, url)
	})
}

// empty deletes every version of every object. What was listed is deleted before
// the next list, which so begins with what is left: no place has to be remembered,
// and a page that was lost is no page that was missed.
func empty(s *finalize.Steps, url string) {
	query, read := "versions", 0
	for page := 1; !s.Stopped(); page++ {
		id := strconv.Itoa(page)
		list := s.HTTP("list."+id, gleaner.HTTPIntent{Method: "GET", URL: url + "?" + query + "&max-keys=" + strconv.Itoa(perPage)})
		if list.Status == 501 && query == "versions" {
			query = "list-type=2" // a server that keeps no versions
			continue
		}
		if !answered(s, list) {
			return
		}
		objects := listed(list.Body)
		if len(objects) == 0 {
			return // or something is left that is not seen here: then the bucket can't be deleted
		}
		body := deletion(objects)
		response := s.HTTP("delete."+id, gleaner.HTTPIntent{
			Method: "POST", URL: url + "?delete", Body: body,
			Headers: map[string]string{"Content-Type": "application/xml", "X-Amz-Checksum-Crc32": checksum(body)},
		})
		if !answered(s, response) {
			return
		}
		if trouble, found := refused(response.Body); found {
			s.Wait(5*time.Minute, "an object can't be deleted: "+trouble)
		}
		if read += len(list.Body); read > perAttempt {
			s.Wait(time.Second, "there may be more in the bucket")
		}
	}
}

// remove deletes the bucket, which has to be empty.
func remove(s *finalize.Steps, url string) {
	response := s.HTTP("bucket", gleaner.HTTPIntent{Method: "DELETE", URL: url})
	if response.Status == 409 {
		s.Wait(10*time.Second, "the bucket is not empty yet: "+text(response.Body, "Code"))
	}
	answered(s, response)
}

// answered judges a response. A 404 that does not say that the bucket is gone, as
// one from a proxy, is no proof that it is.
func answered(s *finalize.Steps, response gleaner.HTTPResult) bool {
	if s.Stopped() || s.Check(response) {
		return !s.Stopped()
	}
	if text(response.Body, "Code") == "NoSuchBucket" {
		s.Done("there is no such bucket")
	}
	s.Fail("the endpoint answers " + strconv.Itoa(response.Status) + ", and not as object storage does: see the settings")
	return false
}

// validate refuses settings that the finalizer could do nothing with.
func validate(r gleaner.Request) (gleaner.Verdict, error) {
	if _, problem := settingsOf(r); problem != "" {
		return gleaner.Verdict{Decision: gleaner.Invalid, Reason: problem}, nil
	}
	return gleaner.Verdict{Decision: gleaner.Valid}, nil
}

// settingsOf reads the settings, and says what is wrong with them.
func settingsOf(r gleaner.Request) (set settings, problem string) {
	if err := r.DecodeSettings(&set); err != nil {
		return set, err.Error()
	}
	if !isEndpoint(set.Endpoint) {
		return set, "endpoint has to be the address of the storage, without a bucket and a slash at its end, such as https://s3.example.com"
	}
	return set, ""
}

func isEndpoint(text string) bool {
	scheme, host, _ := strings.Cut(text, "://")
	return (scheme == "https" || scheme == "http") && host != "" && !strings.HasSuffix(host, "/") && !strings.ContainsAny(host, "?#")
}

// isBucketName keeps a name from meaning another path.
func isBucketName(name string) bool {
	return len(name) >= 3 && len(name) <= 63 && !strings.Contains(name, "..") &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == "" && strings.Trim(name, ".-") == name
}
