package freeport

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

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
	seen := map[int]bool{}
	for range 1000 {
		port, err := Get()
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
	taken := first + int((next.Load()+1)%count)
	listener, err := net.Listen("tcp4", address(taken))
	if err != nil {
		t.Skipf("another process has port %d", taken)
	}
	defer listener.Close()
	if port, err := Get(); err != nil || port == taken {
		t.Errorf("got %d, %v, want another port than %d", port, err, taken)
	}
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
	case first+count > lowest:
		t.Errorf("ports up to %d, and clients have those from %d", first+count-1, lowest)
	}
}
