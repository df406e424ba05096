package serve

import (
	"net"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/worker/wire"
)

const keepsAll = "package gleaner\n\ncollect := {\"decision\": \"Orphan\"}\n"

// operator is the other end of a Server's connection.
type operator struct {
	*testing.T
	conn net.Conn
	in   wire.Reader
	id   uint32
}

// serving returns the operator of a Server that runs until the test ends.
func serving(t *testing.T) *operator {
	t.Helper()
	server, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(t.Context(), theirs) }()
	t.Cleanup(func() {
		ours.Close()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v, although the operator only closed the connection", err)
		}
	})
	return &operator{T: t, conn: ours}
}

// asks sends a request and returns the reply.
func (o *operator) asks(m wire.Message) (reply wire.Reply) {
	o.Helper()
	o.id++
	if _, err := wire.Write(o.conn, o.id, m, nil); err != nil {
		o.Fatal(err)
	}
	frame, err := o.in.Read(o.conn, wire.MaxReply)
	if err == nil {
		err = frame.Decode(&reply)
	}
	if err != nil || frame.ID != o.id {
		o.Fatalf("request %d was answered by %d: %v", o.id, frame.ID, err)
	}
	return reply
}

func TestServe_CompilesLoadsStartsAndAsks(t *testing.T) {
	o := serving(t)
	compiled := o.asks(&wire.Compile{Engine: EngineRego, Files: []wire.File{{Name: "policy.rego", Text: []byte(keepsAll)}}})
	if compiled.Outcome != wire.Done || len(compiled.Code) == 0 || strings.Join(compiled.Hooks, " ") != "collect" {
		t.Fatalf("compiled: %v, %d bytes, hooks %v: %s", compiled.Outcome, len(compiled.Code), compiled.Hooks, compiled.Message)
	}
	for _, m := range []wire.Message{
		&wire.Load{Module: 1, Engine: EngineRego, Digest: "d", Code: compiled.Code, Hooks: compiled.Hooks},
		&wire.Start{Policy: 2, Module: 1, Name: "p"},
	} {
		if reply := o.asks(m); reply.Outcome != wire.Done {
			t.Fatalf("%T: %v: %s", m, reply.Outcome, reply.Message)
		}
	}
	answer := o.asks(&wire.Ask{Policy: 2, Hook: "collect", Document: []byte(`{"hook": "collect"}`)})
	if answer.Outcome != wire.Done || !strings.Contains(string(answer.Verdict), "Orphan") {
		t.Errorf("asked: %v, %s: %s", answer.Outcome, answer.Verdict, answer.Message)
	}
}

// TestServe_AnswersWhatItCannotDo: an error is a reply, with its cause, and the next request is served.
func TestServe_AnswersWhatItCannotDo(t *testing.T) {
	o := serving(t)
	for name, tc := range map[string]struct {
		request wire.Message
		outcome wire.Outcome
		message string
	}{
		"a policy that is not started":     {&wire.Ask{Policy: 9, Hook: "collect"}, wire.Failed, "policy 9 is not started"},
		"a module that is not loaded":      {&wire.Start{Policy: 2, Module: 9, Name: "p"}, wire.Failed, "module 9 is not loaded"},
		"Rego that does not compile":       {&wire.Compile{Engine: EngineRego, Files: []wire.File{{Name: "a.rego", Text: []byte("package gleaner\n\ncollect := {")}}}, wire.Refused, "a.rego"},
		"WebAssembly that is none":         {&wire.Compile{Engine: EngineWasm, Files: []wire.File{{Name: "a.wasm", Text: []byte("text")}}}, wire.Refused, ""},
		"WebAssembly of two files":         {&wire.Compile{Engine: EngineWasm, Files: make([]wire.File, 2)}, wire.Refused, "must be one"},
		"a reply, which is no request":     {&wire.Reply{Outcome: wire.Done}, wire.Failed, "malformed"},
		"compiled code that is nonsense":   {&wire.Load{Module: 1, Engine: EngineRego, Digest: "d", Code: []byte("text")}, wire.Refused, ""},
		"a hook that the module has not":   {&wire.Ask{Policy: 9, Hook: "nonsense"}, wire.Failed, "not started"},
		"compiled WebAssembly that is not": {&wire.Load{Module: 1, Engine: EngineWasm, Digest: "d", Code: []byte("text")}, wire.Refused, ""},
	} {
		if reply := o.asks(tc.request); reply.Outcome != tc.outcome || !strings.Contains(reply.Message, tc.message) || reply.Message == "" {
			t.Errorf("%s: %v: %q", name, reply.Outcome, reply.Message)
		}
	}
}
