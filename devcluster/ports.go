package devcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports come from below the range that systems draw client ports from. Inside
// it, a client that redials a stopped API server could be given the server's
// own port, and the server could never come back to it.
const (
	firstPort = 20000
	lastPort  = 32000
)

// errPortTaken says that somebody took a port between our choice and our use.
var errPortTaken = errors.New("port taken by another process")

type ports struct{ etcd, api, manager int }

func choosePorts() (ports, error) {
	var chosen [3]int
	for i := range chosen {
		listener, err := listenSomewhere()
		if err != nil {
			return ports{}, err
		}
		defer listener.Close() // all at the end, or one port could be drawn twice
		chosen[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports{chosen[0], chosen[1], chosen[2]}, nil
}

func listenSomewhere() (net.Listener, error) {
	var last error
	for range 100 {
		listener, err := listen(firstPort + rand.IntN(lastPort-firstPort))
		if err == nil {
			return listener, nil
		}
		last = err
	}
	return nil, fmt.Errorf("find free port: %w", last)
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
}

func isTaken(port int) bool {
	listener, err := listen(port)
	if err != nil {
		return true
	}
	listener.Close()
	return false
}
