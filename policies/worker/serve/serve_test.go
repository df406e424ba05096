package serve

import (
	"net"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/worker/wire"
)

const keepAllPolicy = "package gleaner\n\ncollect := {\"decision\": \"Orphan\"}\n"

// testClient is the other end of a Server's connection.
type testClient struct {
	*testing.T
	conn net.Conn
	in   wire.Reader
	id   uint32
}

// startServer returns the operator of a Server that runs until the test ends.
func startServer(t *testing.T) *testClient {
	t.Helper()
	server, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	own, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(t.Context(), theirs) }()
	t.Cleanup(func() {
		own.Close()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v, although the operator only closed the connection", err)
		}
	})
	return &testClient{T: t, conn: own}
}

// roundTrip sends a request and returns the reply.
func (o *testClient) roundTrip(m wire.Message) (reply wire.Reply) {
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

func TestServe_CompilesLoadsStartsAndEvaluates(t *testing.T) {
	o := startServer(t)
	compiled := o.roundTrip(&wire.Compile{Engine: EngineRego, Files: []wire.File{{Name: "policy.rego", Text: []byte(keepAllPolicy)}}})
	if compiled.Outcome != wire.Done || len(compiled.Code) == 0 || strings.Join(compiled.Hooks, " ") != "collect" {
		t.Fatalf("compiled: %v, %d bytes, hooks %v: %s", compiled.Outcome, len(compiled.Code), compiled.Hooks, compiled.Message)
	}
	for _, m := range []wire.Message{
		&wire.Load{Module: 1, Engine: EngineRego, Digest: "d", Code: compiled.Code, Hooks: compiled.Hooks},
		&wire.Start{Policy: 2, Module: 1, Name: "p"},
	} {
		if reply := o.roundTrip(m); reply.Outcome != wire.Done {
			t.Fatalf("%T: %v: %s", m, reply.Outcome, reply.Message)
		}
	}
	answer := o.roundTrip(&wire.Evaluate{Policy: 2, Hook: "collect", Document: []byte(`{"hook": "collect"}`)})
	if answer.Outcome != wire.Done || !strings.Contains(string(answer.Verdict), "Orphan") {
		t.Errorf("asked: %v, %s: %s", answer.Outcome, answer.Verdict, answer.Message)
	}
}

// TestServe_RepliesWithErrors: an error is a reply, with its cause, and the next request is served.
func TestServe_RepliesWithErrors(t *testing.T) {
	o := startServer(t)
	for name, tc := range map[string]struct {
		request wire.Message
		outcome wire.Outcome
		message string
	}{
		"a policy that is not started":     {&wire.Evaluate{Policy: 9, Hook: "collect"}, wire.Failed, "policy 9 is not started"},
		"a module that is not loaded":      {&wire.Start{Policy: 2, Module: 9, Name: "p"}, wire.Failed, "module 9 is not loaded"},
		"Rego that does not compile":       {&wire.Compile{Engine: EngineRego, Files: []wire.File{{Name: "a.rego", Text: []byte("package gleaner\n\ncollect := {")}}}, wire.Rejected, "a.rego"},
		"WebAssembly that is none":         {&wire.Compile{Engine: EngineWasm, Files: []wire.File{{Name: "a.wasm", Text: []byte("text")}}}, wire.Rejected, ""},
		"WebAssembly of two files":         {&wire.Compile{Engine: EngineWasm, Files: make([]wire.File, 2)}, wire.Rejected, "must be one"},
		"a reply, which is no request":     {&wire.Reply{Outcome: wire.Done}, wire.Failed, "malformed"},
		"compiled code that is nonsense":   {&wire.Load{Module: 1, Engine: EngineRego, Digest: "d", Code: []byte("text")}, wire.Rejected, ""},
		"a hook that the module has not":   {&wire.Evaluate{Policy: 9, Hook: "nonsense"}, wire.Failed, "not started"},
		"compiled WebAssembly that is not": {&wire.Load{Module: 1, Engine: EngineWasm, Digest: "d", Code: []byte("text")}, wire.Rejected, ""},
	} {
		if reply := o.roundTrip(tc.request); reply.Outcome != tc.outcome || !strings.Contains(reply.Message, tc.message) || reply.Message == "" {
			t.Errorf("%s: %v: %q", name, reply.Outcome, reply.Message)
		}
	}
}
