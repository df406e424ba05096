package archive

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster/s3server"
)

// link is a network link to a server on loopback, which can be cut and slowed down. TLS and signatures
// pass it as they are.
type link struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu          sync.Mutex // covers what follows
	cut         bool
	delay       time.Duration // of each piece of data
	connections map[net.Conn]struct{}
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, to: to, connections: map[net.Conn]struct{}{}}
	l.running.Go(l.accept)
	t.Cleanup(func() {
		listener.Close()
		l.set(true, 0)
		l.running.Wait()
	})
	return l
}

func (l *link) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", l.to)
		if err != nil || !l.add(from, to) {
			from.Close()
			continue
		}
		l.running.Go(func() { l.copy(to, from) })
		l.running.Go(func() { l.copy(from, to) })
	}
}

// add registers both ends of a connection, unless the link is cut: then it closes them.
func (l *link) add(ends ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range ends {
		if l.cut {
			c.Close()
			continue
		}
		l.connections[c] = struct{}{}
	}
	return !l.cut
}

func (l *link) copy(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		delay := l.delay
		l.mu.Unlock()
		if n > 0 {
			<-time.After(delay)
			if _, failed := to.Write(buffer[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// set cuts or repairs the link, and sets its delay.
func (l *link) set(cut bool, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.delay = cut, delay
	if cut {
		for c := range l.connections {
			c.Close()
		}
		clear(l.connections)
	}
}

// newBucket starts an S3 server behind a link, for which it configures this process and those that it starts. It returns
// the location of an archive in a bucket.
func newBucket(t *testing.T) (location string, l *link) {
	t.Helper()
	dir := t.TempDir()
	server, err := s3server.Start(t.Context(), dir, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	response, err := server.Request(t.Context(), http.MethodPut, "/archive", "")
	if err != nil || response.Status >= 300 {
		t.Fatal(response, err)
	}
	l = newLink(t, strings.TrimPrefix(server.URL, "https://"))
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, server.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_S3": fmt.Sprintf("https://%s", l.listener.Addr()), "AWS_REGION": server.Region, "AWS_CA_BUNDLE": ca,
		"AWS_ACCESS_KEY_ID": server.AccessKey, "AWS_SECRET_ACCESS_KEY": server.SecretKey,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	return "s3://archive/objects", l
}
