package finalize_test

import (
	"fmt"
	"time"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/finalize"
	"github.com/gleaner-dev/gleaner/sdk/go/gleanertest"
)

// One call, after which the object may go. Answered 404, the bucket was gone
// before; answered 503, it is asked for again later.
func ExampleSteps_Call() {
	finalizer := func(r gleaner.Request) (gleaner.Verdict, error) {
		return finalize.Run(r, func(s *finalize.Steps) {
			s.Call("bucket", gleaner.HTTPIntent{Method: "DELETE", URL: "https://s3.example.com/" + r.Object.Metadata.Name})
		})
	}
	for _, status := range []int{204, 404, 503, 409} {
		got, err := gleanertest.Finalize(finalizer, gleanertest.Request(gleaner.Finalize), gleanertest.RespondWith(status, "oh"))
		fmt.Println(got.Verdict.Decision, got.Verdict.Reason, err)
	}
	// Output:
	// Done  <nil>
	// Done  <nil>
	// Wait DELETE https://s3.example.com/object returned status 503: oh <nil>
	// Fail DELETE https://s3.example.com/object returned status 409: oh <nil>
}

// What is started once, and then looked at every 10 seconds until it is done.
func ExampleSteps_Until() {
	finalizer := func(r gleaner.Request) (gleaner.Verdict, error) {
		return finalize.Run(r, func(s *finalize.Steps) {
			url := "https://db.example.com/instances/" + r.Object.Metadata.Name
			s.Once("start", func() { s.Call("delete", gleaner.HTTPIntent{Method: "DELETE", URL: url}) })
			_, found := s.Call("look", gleaner.HTTPIntent{Method: "GET", URL: url})
			s.Until(!found, 10*time.Second, "the database is being deleted")
		})
	}
	r := gleanertest.Request(gleaner.Finalize)
	for _, status := range []int{202, 200, 404} {
		got, _ := gleanertest.Finalize(finalizer, r, gleanertest.RespondWith(status, ""))
		fmt.Println(got.Verdict.Decision, got.Verdict.Reason, "after", len(got.Intents), "requests")
		r = got.Next
	}
	// Output:
	// Wait the database is being deleted after 2 requests
	// Wait the database is being deleted after 1 requests
	// Done  after 1 requests
}

// All objects of a kind are deleted, however many pages they are.
func ExampleSteps_Each() {
	finalizer := func(r gleaner.Request) (gleaner.Verdict, error) {
		return finalize.Run(r, func(s *finalize.Steps) {
			volumes := gleaner.ListIntent{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", LabelSelector: "of=object"}
			s.Each("claims", volumes, func(claim gleaner.Object) {
				s.Delete("delete", claim)
			})
		})
	}
	world := gleanertest.FakeCluster{}
	for i := range 120 {
		world.Add(gleanertest.Object("v1", "PersistentVolumeClaim", "shop", fmt.Sprintf("claim-%03d", i)))
	}
	got, err := gleanertest.Finalize(finalizer, gleanertest.Request(gleaner.Finalize), world.Execute)
	fmt.Println(got.Verdict.Decision, err, "after", got.Rounds, "rounds;", len(world.Objects()), "claims are left")
	// Output:
	// Done <nil> after 7 rounds; 0 claims are left
}

// What becomes of an object that can't be finished in time.
func ExampleSteps_GiveUpBy() {
	finalizer := func(r gleaner.Request) (gleaner.Verdict, error) {
		return finalize.Run(r, func(s *finalize.Steps) {
			s.GiveUpBy(s.Deadline(time.Minute), func() {
				s.Warn("left", "BucketLeft", "the bucket is left behind")
			})
			s.Call("bucket", gleaner.HTTPIntent{Method: "DELETE", URL: "https://s3.example.com/" + r.Object.Metadata.Name})
		})
	}
	for _, left := range []time.Duration{10 * time.Minute, 61 * time.Second, time.Minute} {
		r := gleanertest.WithDeadline(gleanertest.Request(gleaner.Finalize), left)
		r.Attempt = 20
		got, _ := gleanertest.Finalize(finalizer, r, gleanertest.RespondWith(503, ""))
		fmt.Println(left, got.Verdict.Decision, got.Verdict.After, got.Verdict.Reason)
	}
	// Output:
	// 10m0s Wait 5m0s DELETE https://s3.example.com/object returned status 503
	// 1m1s Wait 1s DELETE https://s3.example.com/object returned status 503
	// 1m0s Done 0s gave up: not done by 2026-01-02T12:00:00Z
}

// What does not depend on each other takes one round.
func ExampleSteps_All() {
	finalizer := func(r gleaner.Request) (gleaner.Verdict, error) {
		return finalize.Run(r, func(s *finalize.Steps) {
			s.All(
				func() {
					s.Call("record", gleaner.HTTPIntent{Method: "DELETE", URL: "https://dns.example.com/records/object"})
				},
				func() { s.Call("bucket", gleaner.HTTPIntent{Method: "DELETE", URL: "https://s3.example.com/object"}) },
			)
			s.Call("bill", gleaner.HTTPIntent{Method: "POST", URL: "https://bills.example.com/object/close"})
		})
	}
	got, _ := gleanertest.Finalize(finalizer, gleanertest.Request(gleaner.Finalize), gleanertest.RespondWith(200, ""))
	fmt.Println(got.Verdict.Decision, len(got.Intents), "requests,", got.Rounds, "rounds")
	// Output:
	// Done 3 requests, 3 rounds
}
