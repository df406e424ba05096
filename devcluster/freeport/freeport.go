// Package freeport chooses ports of the loopback address for processes that are told where
// to listen.
//
// The ports are below the range from which systems draw the ports of clients. Within that
// range, the connection of any process can take the port between the choice and the use, and
// a client that redials a stopped server can be given the server's own port.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

const (
	first = 20000
	count = 12000
	tries = 100
)

// next is the next port to try. It starts at random, since several test binaries choose at
// the same time, and then grows, so that a process chooses each port once.
var next atomic.Uint32

func init() { next.Store(rand.Uint32N(count)) }

// Get returns a port on which nothing listens. Another process may take it before it is
// used, but no other call in this process returns it.
func Get() (int, error) {
	var last error
	for range tries {
		port := first + int(next.Add(1)%count)
		if last = probe(port); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}

// Address returns an address with such a port, as HOST:PORT.
func Address() (string, error) {
	port, err := Get()
	return address(port), err
}

// IsTaken reports whether something listens on a port.
func IsTaken(port int) bool { return probe(port) != nil }

func probe(port int) error {
	listener, err := net.Listen("tcp4", address(port))
	if err != nil {
		return err
	}
	return listener.Close()
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
