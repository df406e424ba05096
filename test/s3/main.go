// Command s3 is object storage on loopback, with S3's API and its signatures,
// for tests, the demo, and whoever tries the examples. It keeps objects in a
// folder; the account is example with the secret example-secret, unless
// S3_ACCESS_KEY and S3_SECRET_KEY say otherwise.
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

// The account comes from the environment, since arguments are for all to see.
const (
	accessKeyVariable = "S3_ACCESS_KEY"
	secretKeyVariable = "S3_SECRET_KEY"
)

// limit is enough for connections and requests of a test.
const limit = 100

func main() {
	dir := flag.String("dir", "", "the folder that objects are kept in; without it, one that is removed in the end")
	address := flag.String("address", "127.0.0.1:7070", "where to listen")
	cert := flag.String("cert", "", "the certificate, in PEM; without it, plain HTTP is served")
	key := flag.String("key", "", "its key, in PEM")
	region := flag.String("region", "us-east-1", "the region that requests are signed for")
	health := flag.String("health", "/.health", "the path that tells that it works, without a signature")
	child := flag.Bool("child", false, "end with the standard input, and leave Ctrl-C to whoever has started it")
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

// ends is a context that ends with what is read.
func ends(input io.Reader) context.Context {
	signal.Ignore(os.Interrupt)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, input)
		cancel()
	}()
	return ctx
}

// serve keeps what belongs to objects in files beside them, since not every file
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
	beside, err := meta.NewSideCar(attributes)
	if err != nil {
		return fmt.Errorf("keep attributes: %w", err)
	}
	files, err := posix.New(data, beside, posix.PosixOpts{SideCarDir: attributes, VersioningDir: versions})
	if err != nil {
		return fmt.Errorf("keep objects: %w", err)
	}
	return embedgw.RunVersityGW(ctx, files, config)
}
