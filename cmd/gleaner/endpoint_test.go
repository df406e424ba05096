package main

import (
	"testing"
)

func TestEndpoint_InvalidEnvironment_IsRejected(t *testing.T) {
	t.Setenv("GLEANER_ENDPOINT", "127.0.0.1:1")
	for _, command := range [][]string{{"explain", "configmap/a"}, {"doctor"}} {
		_, err := execute(t, command...)
		if err == nil {
			t.Fatal("it is taken")
		}
		containsAll(t, err.Error(), "$GLEANER_ENDPOINT", "write a URL, such as https://127.0.0.1:8443")
	}
}
