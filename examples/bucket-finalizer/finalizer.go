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

	// perAttempt is the number of bytes of lists in an attempt. Each round decodes
	// all earlier results again, which costs fuel.
	perAttempt = 64 << 10
)

// settings are the settings of the finalizer.
type settings struct {
	Endpoint string `json:"endpoint"` // of the storage, without a bucket: https://s3.example.com
}

// bucket has the fields of the object that the finalizer uses.
type bucket struct {
	Spec struct {
		Bucket         string `json:"bucket"`
		DeletionPolicy string `json:"deletionPolicy"`
	} `json:"spec"`
}

// finalizer may be evaluated again at any point, also after a step has been done.
// It needs no state: what is left to do is what is left in the bucket.
func finalizer(r gleaner.Request) (gleaner.Verdict, error) {
	return finalize.Run(r, func(s *finalize.Steps) {
		set, problem := settingsOf(r)
		var b bucket
		if err := r.Object.Decode(&b); err != nil {
			s.Fail(err.Error())
		}
		switch {
		case b.Spec.DeletionPolicy != "Delete":
			s.Done("its deletionPolicy is not Delete: the bucket is kept")
		case problem != "":
			s.Fail(problem)
		case !isBucketName(b.Spec.Bucket):
			s.Fail("its spec.bucket is not a valid bucket name")
		}
		url := set.Endpoint + "/" + b.Spec.Bucket
		empty(s, url)
		remove(s, url)
	})
}

// empty deletes every version of every object. Listed objects are deleted before
// the next list, so each list starts with what is left: no position has to be
// saved, and a lost page is listed again.
func empty(s *finalize.Steps, url string) {
	query, read := "versions", 0
	for page := 1; !s.Stopped(); page++ {
		id := strconv.Itoa(page)
		list := s.HTTP("list."+id, gleaner.HTTPIntent{Method: "GET", URL: url + "?" + query + "&max-keys=" + strconv.Itoa(perPage)})
		if list.Status == 501 && query == "versions" {
			query = "list-type=2" // a server without versioning
			continue
		}
		if !answered(s, list) {
			return
		}
		objects := listed(list.Body)
		if len(objects) == 0 {
			return // if something remains that is not listed, deleting the bucket fails
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
			s.Wait(5*time.Minute, "delete object: "+trouble)
		}
		if read += len(list.Body); read > perAttempt {
			s.Wait(time.Second, "the bucket may have more objects")
		}
	}
}

// remove deletes the bucket, which must be empty.
func remove(s *finalize.Steps, url string) {
	response := s.HTTP("bucket", gleaner.HTTPIntent{Method: "DELETE", URL: url})
	if response.Status == 409 {
		s.Wait(10*time.Second, "the bucket is not empty: "+text(response.Body, "Code"))
	}
	answered(s, response)
}

// answered checks a response. A 404 without the code NoSuchBucket, for example from
// a proxy, does not prove that the bucket is gone.
func answered(s *finalize.Steps, response gleaner.HTTPResult) bool {
	if s.Stopped() || s.Check(response) {
		return !s.Stopped()
	}
	if text(response.Body, "Code") == "NoSuchBucket" {
		s.Done("the bucket does not exist")
	}
	s.Fail("the endpoint returns status " + strconv.Itoa(response.Status) + ", which is not a response of object storage: check the settings")
	return false
}

// validate rejects invalid settings.
func validate(r gleaner.Request) (gleaner.Verdict, error) {
	if _, problem := settingsOf(r); problem != "" {
		return gleaner.Verdict{Decision: gleaner.Invalid, Reason: problem}, nil
	}
	return gleaner.Verdict{Decision: gleaner.Valid}, nil
}

// settingsOf decodes the settings, and returns what is wrong with them.
func settingsOf(r gleaner.Request) (set settings, problem string) {
	if err := r.DecodeSettings(&set); err != nil {
		return set, err.Error()
	}
	if !isEndpoint(set.Endpoint) {
		return set, "endpoint must be the URL of the storage, without a bucket and a slash at the end, such as https://s3.example.com"
	}
	return set, ""
}

func isEndpoint(text string) bool {
	scheme, host, _ := strings.Cut(text, "://")
	return (scheme == "https" || scheme == "http") && host != "" && !strings.HasSuffix(host, "/") && !strings.ContainsAny(host, "?#")
}

// isBucketName rejects names that would change the path.
func isBucketName(name string) bool {
	return len(name) >= 3 && len(name) <= 63 && !strings.Contains(name, "..") &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == "" && strings.Trim(name, ".-") == name
}
