// Package s3server runs a real S3 server on this machine, for the demo and
// tests: it serves TLS on loopback, keeps objects in a folder, and refuses what
// is not signed. The server is built from a nested module.
package s3server

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster/freeport"
)

const (
	loopback      = "127.0.0.1"
	health        = "/.health" // no bucket's name begins so
	startTimeout  = time.Minute
	probeInterval = 20 * time.Millisecond
	attempts      = 5 // a port may be taken between the choice and the use
)

// Server is a running server. Its methods may be called concurrently.
type Server struct {
	URL       string // without a slash at the end
	Region    string
	AccessKey string
	SecretKey string
	CA        []byte // what its certificate is checked against, in PEM

	client *http.Client
	log    string
	stdin  io.Closer
	exited chan struct{} // closed after the process was reaped
}

// Start runs a server that keeps its objects in a folder, and returns when it
// answers. It ends with Close, or with this process. Progress, about a build,
// may be nil.
func Start(ctx context.Context, dir string, progress io.Writer) (*Server, error) {
	program, err := Build(ctx, progress)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("resolve folder: %w", err)
	}
	cert, key, err := certificate()
	if err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, fmt.Errorf("write certificate: %w", err)
		}
	}
	var last error
	for range attempts {
		s, err := start(ctx, program, dir, cert)
		if err == nil {
			return s, nil
		}
		if last = err; ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

func start(ctx context.Context, program, dir string, cert []byte) (*Server, error) {
	port, err := freeport.Get()
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(loopback, strconv.Itoa(port))
	s := &Server{
		URL: "https://" + address, Region: "us-east-1", AccessKey: "AK" + random(8), SecretKey: random(20), CA: cert,
		client: client(cert), log: filepath.Join(dir, "log"), exited: make(chan struct{}),
	}
	cmd := exec.Command(program, "-child", "-dir", dir, "-address", address, "-region", s.Region, "-health", health,
		"-cert", filepath.Join(dir, "tls.crt"), "-key", filepath.Join(dir, "tls.key"))
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "S3_ACCESS_KEY=" + s.AccessKey, "S3_SECRET_KEY=" + s.SecretKey}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, fmt.Errorf("open log of the S3 server: %w", err)
	}
	defer log.Close() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = log, log
	// The server ends when this pipe does, which is when this process does, by
	// whatever means.
	if s.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("run the S3 server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run the S3 server: %w", err)
	}
	go func() {
		defer close(s.exited)
		_ = cmd.Wait() // how it ended is in its log
	}()
	if err := s.await(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// await waits until the server answers, with its own certificate.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		if s.healthy(ctx) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-s.exited:
			said, err := os.ReadFile(s.log)
			return errors.Join(fmt.Errorf("the S3 server ended: %s", said), err)
		case <-ctx.Done():
			return fmt.Errorf("wait for the S3 server: %w", ctx.Err())
		}
	}
}

func (s *Server) healthy(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+health, nil)
	if err != nil {
		return false
	}
	response, err := s.client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Close ends the server and returns when it is gone. What it kept stays in the
// folder.
func (s *Server) Close() error {
	s.client.CloseIdleConnections()
	err := s.stdin.Close()
	<-s.exited
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("end the S3 server: %w", err)
	}
	return nil
}

// client trusts the server alone, and uses no proxy.
func client(cert []byte) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
}

func random(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
