// Command s3 serves object storage on loopback, with S3's API and signatures,
// for tests, the demo and the examples. It stores objects in a
// folder. The access key is example with the secret example-secret, unless
// S3_ACCESS_KEY and S3_SECRET_KEY are set.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

// The credentials come from the environment, since arguments are visible to all users.
const (
	accessKeyVariable = "S3_ACCESS_KEY"
	secretKeyVariable = "S3_SECRET_KEY"
)

// limit on connections and requests, enough for tests.
const limit = 100

func main() {
	dir := flag.String("dir", "", "folder to store objects in; default: a temporary folder")
	address := flag.String("address", "127.0.0.1:7070", "address to listen on")
	cert := flag.String("cert", "", "certificate file, in PEM; default: plain HTTP")
	key := flag.String("key", "", "key file of the certificate, in PEM")
	region := flag.String("region", "us-east-1", "region that requests are signed for")
	health := flag.String("health", "/.health", "path of health checks, without a signature")
	child := flag.Bool("child", false, "stop at the end of standard input, and ignore interrupts")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *child {
		ctx = ends(os.Stdin)
	}
	err := serve(ctx, *dir, &embedgw.Config{
		RootUserAccess: cmp.Or(os.Getenv(accessKeyVariable), "example"),
		RootUserSecret: cmp.Or(os.Getenv(secretKeyVariable), "example-secret"),
		Region:         *region, Ports: []string{*address}, CertFile: *cert, KeyFile: *key, HealthPath: *health,
		MaxConnections: limit, MaxRequests: limit, MultipartMaxParts: limit, KeepAlive: true, Quiet: true,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "s3:", err)
		os.Exit(1)
	}
}

// ends returns a context that is canceled at the end of input.
func ends(input io.Reader) context.Context {
	signal.Ignore(os.Interrupt)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, input)
		cancel()
	}()
	return ctx
}

// serve stores the attributes of objects in files next to them, since not every file
// system has extended attributes.
func serve(ctx context.Context, dir string, config *embedgw.Config) error {
	if dir == "" {
		temporary, err := os.MkdirTemp("", "gleaner-s3-")
		if err != nil {
			return fmt.Errorf("create folder: %w", err)
		}
		defer func() { _ = os.RemoveAll(temporary) }()
		dir = temporary
	}
	data, versions, attributes := filepath.Join(dir, "data"), filepath.Join(dir, "versions"), filepath.Join(dir, "attributes")
	for _, folder := range []string{data, versions, attributes} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("create folder: %w", err)
		}
	}
	accounts, err := meta.NewSideCar(attributes)
	if err != nil {
		return fmt.Errorf("store attributes: %w", err)
	}
	files, err := posix.New(data, accounts, posix.PosixOpts{SideCarDir: attributes, VersioningDir: versions})
	if err != nil {
		return fmt.Errorf("store objects: %w", err)
	}
	return embedgw.RunVersityGW(ctx, files, config)
}
