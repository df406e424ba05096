package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// probe is the argument by which this test's own program confines itself, and then tries
// what it must not be able to do.
const probe = "probe"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == probe {
		try(os.Args[2])
		return
	}
	os.Exit(m.Run())
}

// forbiddenAttempts are what a confined process must not succeed in. Each is made with the cache
// folder of Options.
var forbiddenAttempts = map[string]func(cache string) error{
	"read a file": func(string) error {
		_, err := os.ReadFile("/etc/passwd")
		return err
	},
	"list a folder": func(string) error {
		_, err := os.ReadDir("/proc")
		return err
	},
	"write outside of the cache folder": func(cache string) error {
		return os.WriteFile(filepath.Join(filepath.Dir(cache), "outside"), nil, 0o600)
	},
	"open a network connection": func(string) error {
		_, err := net.Dial("tcp", "127.0.0.1:1")
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENETUNREACH) {
			return nil // it got as far as the network
		}
		return err
	},
	"open a socket": func(string) error {
		_, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		return err
	},
	"run a program": func(string) error { return exec.Command("/bin/true").Run() },
	"signal its parent": func(string) error {
		return syscall.Kill(os.Getppid(), 0)
	},
	"trace its parent": func(string) error {
		return unix.PtraceAttach(os.Getppid())
	},
	"raise its priority": func(string) error { return unix.Setpriority(unix.PRIO_PROCESS, 0, 0) },
	"raise its limits": func(string) error {
		return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 16, Max: 1 << 16})
	},
}

// try confines this process and prints what it could do nevertheless.
func try(cache string) {
	result := struct{ Active, Possible []string }{Active: Apply(Options{CacheDir: cache, Nice: 5})}
	for name, attempt := range forbiddenAttempts {
		if attempt(cache) == nil {
			result.Possible = append(result.Possible, name)
		}
	}
	if err := os.WriteFile(filepath.Join(cache, "compiled"), []byte("code"), 0o600); err != nil {
		result.Possible = append(result.Possible, "no use of its cache folder: "+err.Error())
	}
	_ = json.NewEncoder(os.Stdout).Encode(result)
}

// confined runs try in a process of its own.
func confined(t *testing.T, namespaces bool) (active, possible []string) {
	t.Helper()
	cache := filepath.Join(t.TempDir(), "cache")
	if err := os.Mkdir(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", probe, cache)
	cmd.Env = []string{}
	cmd.SysProcAttr = Attributes(namespaces)
	cmd.SysProcAttr.Pdeathsig = 0 // the thread of a test may end before
	out, err := cmd.Output()
	if err != nil {
		exit := new(exec.ExitError)
		errors.As(err, &exit)
		if namespaces && exit.ProcessState == nil {
			t.Skipf("this system allows no namespaces: %v", err)
		}
		t.Fatalf("%v: %s%s", err, out, exit.Stderr)
	}
	var result struct{ Active, Possible []string }
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return result.Active, result.Possible
}

func TestAConfinedProcessCanDoNothingButItsWork(t *testing.T) {
	for _, namespaces := range []bool{false, true} {
		t.Run(fmt.Sprintf("namespaces=%t", namespaces), func(t *testing.T) {
			active, possible := confined(t, namespaces)
			if all := []string{Limits, Landlock, Seccomp}; !slices.Equal(active, all) {
				t.Skipf("this kernel offers only %s", strings.Join(active, ", "))
			}
			if len(possible) != 0 {
				t.Errorf("it could: %s", strings.Join(possible, ", "))
			}
		})
	}
}
