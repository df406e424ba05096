// Command guest is a policy in stock Go that does what its settings ask for.
package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sort"
	"strings"
	"time"
	"unsafe"
)

//go:wasmimport gleaner_v1 request_read
func requestRead(ptr unsafe.Pointer, limit uint32) uint32

//go:wasmimport gleaner_v1 verdict_write
func verdictWrite(ptr unsafe.Pointer, length uint32)

//go:wasmimport gleaner_v1 log
func writeLog(level uint32, ptr unsafe.Pointer, length uint32)

type request struct {
	Hook   string
	Policy struct {
		Settings struct {
			Do    string
			Count int
		}
	}
	Object struct {
		Metadata struct {
			Name   string
			Labels map[string]string
		}
	}
	Owners []struct{ Status string }
	Time   time.Time
}

type verdict struct {
	Decision string `json:"decision"`
	Reason   string `json:"reason,omitempty"`
}

// calls counts calls that this instance remembers.
var calls int

var started = time.Now()

func main() {}

//go:wasmexport collect
func collect() { serve() }

//go:wasmexport finalize
func finalize() { serve() }

func serve() {
	calls++
	r := read()
	v := verdict{Decision: "Abstain"}
	if r.Hook == "finalize" {
		v.Decision = "Done"
	}
	if do, ok := deeds[r.Policy.Settings.Do]; ok {
		v.Reason = do(r)
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	verdictWrite(unsafe.Pointer(&data[0]), uint32(len(data)))
}

func read() request {
	data := make([]byte, 1024)
	n := requestRead(unsafe.Pointer(&data[0]), uint32(len(data)))
	if int(n) > len(data) {
		data = make([]byte, n)
		requestRead(unsafe.Pointer(&data[0]), n)
	}
	var r request
	if err := json.Unmarshal(data[:n], &r); err != nil {
		panic(err)
	}
	return r
}

func logf(level uint32, format string, args ...any) {
	line := []byte(fmt.Sprintf(format, args...))
	writeLog(level, unsafe.Pointer(&line[0]), uint32(len(line)))
}

var deeds = map[string]func(request) string{
	"labels": func(r request) string { return join(r.Object.Metadata.Labels) },
	"calls":  func(request) string { return fmt.Sprint(calls) },
	"order": func(r request) string {
		var names []string
		for name := range r.Object.Metadata.Labels {
			names = append(names, name)
		}
		return strings.Join(names, " ")
	},
	"clock": func(request) string { return time.Now().UTC().Format(time.RFC3339Nano) },
	"start": func(request) string { return started.UTC().Format(time.RFC3339Nano) },
	"sleep": func(r request) string {
		before := time.Now()
		time.Sleep(time.Duration(r.Policy.Settings.Count) * time.Second)
		return time.Since(before).String()
	},
	"random": func(request) string {
		b := make([]byte, 16)
		if _, err := rand.Read(b); err != nil {
			panic(err)
		}
		return hex.EncodeToString(b)
	},
	"panic": func(request) string { panic("there is no bucket") },
	"exit":  func(request) string { os.Exit(3); return "" },
	"tinygo": func(request) string { // as TinyGo panics
		fmt.Println("panic: there is no TinyGo bucket")
		os.Exit(2)
		return ""
	},
	"print": func(request) string {
		fmt.Println("to standard output")
		fmt.Fprintln(os.Stderr, "to standard error")
		logf(2, "to the log")
		return ""
	},
	"flood": func(r request) string {
		for i := range r.Policy.Settings.Count {
			logf(1, "line %d", i)
		}
		return ""
	},
	"spin": func(request) string {
		for calls > 0 {
			calls++
		}
		return ""
	},
	"hoard": func(r request) string {
		var all [][]byte
		for range r.Policy.Settings.Count {
			all = append(all, make([]byte, 1<<20))
		}
		return fmt.Sprint(len(all))
	},
	"world": func(request) string {
		_, file := os.Open("/etc/passwd")
		_, dial := net.Dial("tcp", "127.0.0.1:1")
		return fmt.Sprint(len(os.Args), len(os.Environ()), file != nil, dial != nil)
	},
}

func join(labels map[string]string) string {
	var all []string
	for name, value := range labels {
		all = append(all, name+"="+value)
	}
	sort.Strings(all)
	return strings.Join(all, ",")
}

func init() {
	// What encoding/json learns about types is learned before the first call.
	var r request
	_ = json.Unmarshal([]byte(`{"policy":{"settings":{}},"object":{"metadata":{"labels":{"a":"b"}}},"owners":[{}],"time":"2026-01-01T00:00:00Z"}`), &r)
	_, _ = json.Marshal(verdict{})
}
