package watch

import (
	"context"
	"net"
	"sync"
)

// listener is a listener in memory. Unlike a socket, it does not stop the clock of a
// synctest bubble from advancing.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newListener() *listener {
	l := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.close()
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return memoryAddr{} }

// dial connects to the listener, whatever the address.
func (l *listener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// memoryAddr is the address of a listener in memory.
type memoryAddr struct{}

// Network implements net.Addr.
func (memoryAddr) Network() string { return "memory" }

// String implements net.Addr.
func (memoryAddr) String() string { return "apiserver.test" }
