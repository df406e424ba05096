package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestDemoSaysWhatItWaitsFor(t *testing.T) {
	var out bytes.Buffer
	d := &demonstration{stage: &stage{done: make(chan error, 1)}, out: &out, silence: time.Millisecond, news: func() {}}
	err := d.until(t.Context(), func() error {
		if strings.Contains(out.String(), "  Waiting: the policy is not ready\n") {
			return nil
		}
		return errors.New("the policy is not ready")
	})
	if err != nil {
		t.Errorf("nothing was said: %v", err)
	}
	if demoSilence > 10*time.Second {
		t.Errorf("%s are too long", demoSilence)
	}
}
