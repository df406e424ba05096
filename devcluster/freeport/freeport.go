// Package freeport chooses ports of the loopback address for processes that are told where
// to listen.
//
// The ports are below the range from which systems draw the ports of clients. Within that
// range, the connection of any process can take the port between the choice and the use, and
// a client that redials a stopped server can be given the server's own port.
//
// A process that uses this package reserves blocks of ports, and holds them until it ends. So
// its ports stay its own while the server on one is started, stopped or restarted.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The first port of a block is the reservation: the process listens on it.
const blockSize = 50

// A pool is a range of ports in blocks.
type pool struct {
	first, blocks int

	mu         sync.Mutex
	held       []net.Listener // one for each block of this process
	next, left int            // in the block reserved last
}

var shared = pool{first: 20000, blocks: 240}

// Get returns a port on which nothing listens. No other call returns it, in this process or in
// another that uses this package, until this process ends. It fails if this process and others
// have all blocks.
func Get() (int, error) { return shared.get() }

func (p *pool) get() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.left == 0 {
			if err := p.reserve(); err != nil {
				return 0, fmt.Errorf("find a free port: %w", err)
			}
		}
		port := p.next
		p.next++
		p.left--
		if !IsTaken(port) {
			return port, nil
		}
	}
}

// reserve takes a block that no process has.
func (p *pool) reserve() error {
	var last error
	start := rand.IntN(p.blocks) // most blocks from here on are free, wherever others started
	for i := range p.blocks {
		first := p.first + (start+i)%p.blocks*blockSize
		listener, err := net.Listen("tcp4", address(first))
		if err == nil {
			p.held = append(p.held, listener)
			p.next, p.left = first+1, blockSize-1
			return nil
		}
		last = err
	}
	return fmt.Errorf("all %d blocks of ports from %d to %d are reserved: %w", p.blocks, p.first, p.first+p.blocks*blockSize-1, last)
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
