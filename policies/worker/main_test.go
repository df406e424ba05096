package worker

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/policies/worker/serve"
	"github.com/gleaner-dev/gleaner/policies/worker/wire"
)

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "faulty-") {
		faulty(strings.TrimPrefix(os.Args[1], "faulty-"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// faulty is a worker that does what no worker should. It loads and starts anything, and is
// faulty when it is asked.
func faulty(how string) {
	conn := os.NewFile(3, "operator")
	reply := &wire.Reply{Outcome: wire.Done}
	if how == "at-once" {
		fmt.Fprintln(os.Stderr, "fatal error: out of luck")
		os.Exit(2)
	}
	if how == "silent" { // it never says that it is ready
		time.Sleep(time.Hour)
	}
	_, _ = wire.Write(conn, 0, reply, nil)
	later, ok := strings.CutPrefix(how, "later-") // when it is asked a second time
	if ok {
		how = "abstain"
	} else {
		later = ""
	}
	var in wire.Reader
	for asked := 0; ; {
		frame, err := in.Read(conn, wire.MaxRequest)
		if err != nil {
			return
		}
		if rest, ok := strings.CutPrefix(how, "compiler-"); ok {
			how = rest
		} else if frame.Kind != wire.KindEvaluate {
			_, _ = wire.Write(conn, frame.ID, &wire.Reply{Outcome: wire.Done, Hooks: []string{"collect"}, Code: []byte("code")}, nil)
			continue
		}
		if asked++; asked == 2 && later != "" {
			how = later
		}
		const verdict = `{"decision": "Delete"}`
		switch how {
		case "late", "late-busy": // its own clock says that the module took too long
			if how == "late" {
				time.Sleep(500 * time.Millisecond)
			}
			for cpu := time.Duration(0); how == "late-busy" && cpu < 300*time.Millisecond; {
				_, cpu, _ = usage(os.Getpid())
			}
			_, _ = wire.Write(conn, frame.ID, &wire.Reply{Outcome: wire.Faulted, FaultKind: "TimedOut", Message: "too long"}, nil)
			continue
		case "abstain":
			_, _ = wire.Write(conn, frame.ID, &wire.Reply{Outcome: wire.Done, Verdict: []byte(`{"decision": "Abstain"}`)}, nil)
			continue
		case "hang":
			time.Sleep(time.Hour)
		case "garbage":
			_, _ = conn.WriteString(strings.Repeat("garbage ", 100))
		case "half":
			_, _ = conn.Write([]byte{0xff, 0, 0, 0, byte(wire.KindReply), byte(frame.ID), 0, 0, 0, byte(wire.Done)})
		case "huge":
			_, _ = conn.Write([]byte{0, 0, 0, 0xff, byte(wire.KindReply), byte(frame.ID), 0, 0, 0})
		case "closes":
			_ = conn.Close()
			time.Sleep(time.Hour)
		case "failed": // with a verdict that must not count
			_, _ = wire.Write(conn, frame.ID, &wire.Reply{Outcome: wire.Failed, Verdict: []byte(verdict), Message: "no"}, nil)
			continue
		case "twice": // a reply that nothing has asked for
			_, _ = wire.Write(conn, frame.ID, &wire.Reply{Outcome: wire.Done, Verdict: []byte(`{"decision": "Abstain"}`)}, nil)
			_, _ = wire.Write(conn, frame.ID, &wire.Reply{Outcome: wire.Done, Verdict: []byte(verdict)}, nil)
			continue
		case "nonsense":
			_, _ = wire.Write(conn, frame.ID, &wire.Reply{Outcome: wire.Done, Verdict: []byte(`{"decision": "Destroy"}`)}, nil)
			continue
		case "exits":
			fmt.Fprintln(os.Stderr, "fatal error: out of luck")
			os.Exit(2)
		case "threadless":
			fmt.Fprintln(os.Stderr, "runtime: failed to create new OS thread (have 9 already; errno=11)")
			os.Exit(2)
		case "killed":
			p, _ := os.FindProcess(os.Getpid())
			_ = p.Kill()
			time.Sleep(time.Hour)
		case "hog":
			hog()
		}
	}
}

// hog uses memory until it is killed.
func hog() {
	var all [][]byte
	for {
		page := make([]byte, 4<<20)
		for i := 0; i < len(page); i += 4096 {
			page[i] = 1
		}
		all = append(all, page)
		time.Sleep(time.Millisecond)
		runtime.KeepAlive(all)
	}
}
