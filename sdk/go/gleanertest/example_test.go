package gleanertest_test

import (
	"fmt"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/gleanertest"
)

// emptyBucket is a finalizer: it asks the host to delete a bucket, and looks at
// what came of that when it is asked again.
func emptyBucket(r gleaner.Request) (gleaner.Verdict, error) {
	result, asked := r.Results["bucket"]
	switch {
	case !asked:
		return gleaner.Verdict{Decision: gleaner.Act, Intents: []gleaner.Intent{{
			ID:   "bucket",
			HTTP: &gleaner.HTTPIntent{Method: "DELETE", URL: "https://s3.example.com/" + r.Object.Metadata.Name},
		}}}, nil
	case result.Error != nil:
		gleaner.Warnf("delete the bucket: %s", result.Error.Message)
		return gleaner.Verdict{Decision: gleaner.Wait, Reason: "the bucket's service does not answer"}, nil
	case result.HTTP.Status == 204, result.HTTP.Status == 404: // gone, or gone before
		return gleaner.Verdict{Decision: gleaner.Done}, nil
	default:
		return gleaner.Verdict{Decision: gleaner.Fail, Reason: fmt.Sprintf("the bucket's service answers %d", result.HTTP.Status)}, nil
	}
}

func ExampleCall() {
	r := gleanertest.Request(gleaner.Finalize)
	for _, results := range []map[string]gleaner.Result{
		nil,
		{"bucket": {Error: &gleaner.ResultError{Reason: gleaner.ErrorUnavailable, Message: "timeout"}}},
		{"bucket": {HTTP: &gleaner.HTTPResult{Status: 204}}},
		{"bucket": {HTTP: &gleaner.HTTPResult{Status: 409}}},
	} {
		r.Results = results
		answer, err := gleanertest.Call(emptyBucket, r)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(answer.Verdict.Decision, answer.Verdict.Reason, answer.Log)
	}
	// Output:
	// Act  []
	// Wait the bucket's service does not answer [{warn delete the bucket: timeout}]
	// Done  []
	// Fail the bucket's service answers 409 []
}
