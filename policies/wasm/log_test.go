package wasm

import (
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
)

func TestFailureMessage(t *testing.T) {
	stdout := Line{Source: SourceStdout, Level: hostabi.LogInfo}
	stderr := Line{Source: SourceStderr, Level: hostabi.LogWarn}
	logged := Line{Source: SourceLog, Level: hostabi.LogError}
	type written struct {
		line Line
		text string
	}
	for claim, c := range map[string]struct {
		written []written
		want    string
	}{
		"nothing":                        {nil, ""},
		"what Go panics with":            {[]written{{stderr, "panic: oh\n\ngoroutine 1:\n"}}, "last standard error: panic: oh"},
		"what TinyGo panics with":        {[]written{{stdout, "hello\npanic: oh\n"}}, "last standard output: panic: oh"},
		"what TinyGo ends with":          {[]written{{stderr, "warned\n"}, {stdout, "fatal error: out of memory"}}, "last standard output: fatal error: out of memory"},
		"output is no error":             {[]written{{stdout, "all is well\n"}}, ""},
		"an error that a handler gave":   {[]written{{logged, "wait: not a duration"}}, "last logged error: wait: not a duration"},
		"a warning in the log is no end": {[]written{{Line{Source: SourceLog, Level: hostabi.LogWarn}, "slow"}}, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			j := logBuffer{remaining: 1 << 10}
			for _, w := range c.written {
				if w.line.Source == SourceLog {
					j.add(w.line, []byte(w.text))
				} else {
					j.write(w.line, []byte(w.text))
				}
			}
			if got := j.failureMessage(); got != c.want {
				t.Errorf("they are %q, want %q", got, c.want)
			}
		})
	}
}
