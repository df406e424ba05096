package freeport

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

const (
	poolOfParent = "GLEANER_TEST_FREEPORT" // the first port of its pool, for another process of these tests
	ownBlocks    = 12
)

// ownFirst is where the pool of these tests starts: they use up most of a pool, and tests of
// other packages run meanwhile.
var ownFirst = 8000 + os.Getpid()%16*ownBlocks*blockSize

func init() {
	if port, err := strconv.Atoi(os.Getenv(poolOfParent)); err == nil {
		ownFirst = port
	}
}

func newPool(t *testing.T) *pool {
	p := &pool{first: ownFirst, blocks: ownBlocks}
	t.Cleanup(func() {
		for _, listener := range p.held {
			listener.Close()
		}
	})
	return p
}

func TestAddress_CanBeListenedOn(t *testing.T) {
	chosen, err := Address()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", chosen)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if port := listener.Addr().(*net.TCPAddr).Port; !IsTaken(port) {
		t.Errorf("port %d: got free, want taken", port)
	}
}

func TestGet_ReturnsEachPortOnce(t *testing.T) {
	p := newPool(t)
	seen := map[int]bool{}
	for range ownBlocks / 2 * blockSize {
		port, err := p.get()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d was returned twice", port)
		}
		seen[port] = true
	}
}

func TestGet_SkipsPortsThatAreTaken(t *testing.T) {
	p := newPool(t)
	before, err := p.get()
	if err != nil {
		t.Fatal(err)
	}
	taken := before + 1
	listener, err := net.Listen("tcp4", address(taken))
	if err != nil {
		t.Skipf("another process has port %d", taken)
	}
	defer listener.Close()
	if port, err := p.get(); err != nil || port == taken {
		t.Errorf("got %d, %v, want another port than %d", port, err, taken)
	}
}

// Otherwise two test binaries, or a test and the one after it, give a port to two servers.
func TestGet_ReturnsNoPortOfAnotherProcess(t *testing.T) {
	const ports = ownBlocks * blockSize / 3 // of each process
	p := newPool(t)
	own := map[int]bool{}
	for range ports {
		port, err := p.get()
		if err != nil {
			t.Fatal(err)
		}
		own[port] = true
	}
	if os.Getenv(poolOfParent) != "" {
		for port := range own {
			fmt.Fprintln(os.Stdout, "port", port)
		}
		return
	}
	other := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	other.Env = append(os.Environ(), fmt.Sprintf("%s=%d", poolOfParent, ownFirst))
	out, err := other.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	chosen := 0
	for line := range strings.Lines(string(out)) {
		var port int
		if _, err := fmt.Sscanf(line, "port %d", &port); err != nil {
			continue
		}
		chosen++
		if own[port] {
			t.Errorf("port %d was returned in both processes", port)
		}
	}
	if chosen != ports {
		t.Errorf("the other process chose %d ports, want %d", chosen, ports)
	}
}

func TestGet_AllPortsReserved_SaysWhich(t *testing.T) {
	p := newPool(t)
	for range ownBlocks * blockSize {
		if _, err := p.get(); err != nil {
			if want := fmt.Sprintf("all %d blocks of ports from %d to", ownBlocks, ownFirst); !strings.Contains(err.Error(), want) {
				t.Errorf("got %q, want %q in it", err, want)
			}
			return
		}
	}
	t.Error("got a port for each call, want an error: the first port of each block is its reservation")
}

// Otherwise a test fails now and then, since a connection has taken the port of its server.
func TestGet_ReturnsNoPortOfClients(t *testing.T) {
	const lowestByDefault = 32768 // of Linux
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Skip(err) // another system
	}
	switch lowest, err := strconv.Atoi(strings.Fields(string(text))[0]); {
	case err != nil:
		t.Fatal(err)
	case lowest < lowestByDefault:
		t.Skipf("this machine gives clients ports from %d, and not those from %d as others do", lowest, lowestByDefault)
	case shared.first+shared.blocks*blockSize > lowest:
		t.Errorf("ports up to %d, and clients have those from %d", shared.first+shared.blocks*blockSize-1, lowest)
	}
}
