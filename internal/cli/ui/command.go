// Package ui implements gleaner ui, which serves the web UI on this machine.
package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/ui/guard"
	"github.com/gleaner-dev/gleaner/internal/ui/server"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

const long = `Show owners and dependents, stuck objects, decisions and policies in a browser, and what is being deleted right now.

The pages are served on 127.0.0.1 only, to the browser in which the printed address is opened first, until the command is
interrupted. They show what your kubeconfig may read, and read it when it is shown. Nothing needs to be installed in the cluster;
with Gleaner installed, the pages also show what its operator does and has decided. With -f, the graph is that of files.

Only the buttons to pause and resume deletions, and to restore archived objects, change anything, with your permissions.

With --login, the pages are for several users, at https://ADDRESS:PORT: each logs in with a token of the cluster, sees what that
token may read, and can change nothing. The command needs no permissions of its own, only the address of the API server. A request
is refused unless its Host header is a loopback address, --address or a --host.`

const (
	loopback          = "127.0.0.1"
	readHeaderTimeout = 10 * time.Second
	shutdownTimeout   = 2 * time.Second // for event streams, which do not end by themselves
)

type options struct {
	*kubectl.Flags
	archive entries.Flags
	port    int
	open    bool
	sharing
}

// Command returns the command gleaner ui.
func Command() *cobra.Command {
	o := &options{Flags: kubectl.NewFlags()}
	cmd := &cobra.Command{
		Use:   "ui [-n NAMESPACE | -A] [-f FILE]",
		Short: "Show owners, decisions and deletions in a browser",
		Long:  long,
		Example: "  gleaner ui\n" +
			"  gleaner ui -A --port 8001 --open=false\n" +
			"  kubectl get all,cm,secret -n shop -o yaml | gleaner ui -f -",
		Args: arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.AddTo(cmd)
	o.AddAllNamespaces(cmd)
	o.AddFiles(cmd)
	o.archive.AddTo(cmd.Flags(), true)
	cmd.Flags().IntVar(&o.port, "port", 0, "`port` to serve the pages at; 0 is any free one")
	cmd.Flags().BoolVar(&o.open, "open", true, "open the browser")
	cmd.Flags().BoolVar(&o.login, "login", false, "serve users who log in with a token of the cluster; requires --port")
	cmd.Flags().StringVar(&o.address, "address", loopback, "IP `address` to serve the pages at, with --login")
	cmd.Flags().StringSliceVar(&o.hosts, "host", nil, "`name` under which users reach the pages, with --login; several are separated by commas")
	cmd.Flags().StringVar(&o.cert, "tls-cert-file", "", "`file` with the certificate, with --login; by default it is self-signed")
	cmd.Flags().StringVar(&o.key, "tls-private-key-file", "", "`file` with the private key of the certificate")
	return cmd
}

func (o *options) validate() error {
	if o.port < 0 || o.port > 65535 {
		return exit.Usagef("--port=%d: use a port from 1 to 65535, or 0 for any free one", o.port)
	}
	return errors.Join(o.Validate(), o.archive.Validate(), o.sharing.validate(o))
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	if o.login {
		listener, err := o.listen(ctx)
		if err != nil {
			return err
		}
		printer.Fprintf(out, "Serving https://%s\n", listener.Addr())
		return o.share(ctx, listener)
	}
	sources, done, err := o.sources(ctx)
	if err != nil {
		return err
	}
	defer done()
	listener, err := o.listen(ctx)
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	door, token := guard.NewDoor(port, server.New(func(*http.Request) *server.Sources { return sources }, time.Now))
	address := "http://" + listener.Addr().String() + "/open?token=" + token
	printer.Fprintf(out, "Open %s\nThe address works once, in one browser. To end: Ctrl+C\n", address)
	if o.open {
		openBrowser(ctx, address)
	}
	return serve(ctx, listener, door, []string{loopback, "localhost"})
}

func (o *options) listen(ctx context.Context) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(o.address, strconv.Itoa(o.port)))
	if err != nil {
		err = fmt.Errorf("serve the pages: %w; select another port with --port", err)
	}
	return listener, err
}

// serve serves pages until the context ends, under the names of some hosts. A kubelet does not know these names.
func serve(ctx context.Context, listener net.Listener, pages http.Handler, hosts []string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.Handle("/", guard.Harden(pages, hosts...))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: readHeaderTimeout, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if s.Shutdown(ending) != nil {
			_ = s.Close()
		}
	})
	defer stop()
	if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the pages: %w", err)
	}
	return nil
}

// sources returns what pages read: a cluster or files.
func (o *options) sources(ctx context.Context) (*server.Sources, func(), error) {
	if len(o.Files) != 0 {
		s, err := o.files(ctx)
		return s, func() {}, err
	}
	config, err := o.Config()
	if err != nil {
		return nil, nil, err
	}
	if err := kubectl.CheckConnection(ctx, config); err != nil {
		return nil, nil, err
	}
	namespace, err := o.ResolveNamespace()
	if err != nil {
		return nil, nil, err
	}
	mapper, err := o.ToRESTMapper()
	if err != nil {
		return nil, nil, fmt.Errorf("discover types: %w", err)
	}
	c, err := newCluster(config, mapper, &o.archive, namespace)
	if err != nil {
		return nil, nil, err
	}
	first := namespace
	if o.AllNamespaces {
		first = ""
	}
	return c.sources(o.from(config), first), c.operator.close, nil
}

// from names the cluster.
func (o *options) from(config *rest.Config) string {
	if raw, err := o.ToRawKubeConfigLoader().RawConfig(); err == nil {
		if name := *o.Context; name != "" {
			return name
		}
		if raw.CurrentContext != "" {
			return raw.CurrentContext
		}
	}
	return config.Host
}

// files returns what pages read of files, which are read once.
func (o *options) files(ctx context.Context) (*server.Sources, error) {
	objects, err := input.LoadResources(ctx, o.Files)
	if err != nil {
		return nil, err
	}
	namespace, err := o.ResolveNamespace()
	if err != nil {
		return nil, err
	}
	read := func(_ context.Context, namespace string) (*input.Input, error) {
		s, err := survey.Files(objects, time.Now)
		return &input.Input{Namespace: namespace, Survey: s}, err
	}
	var names []string
	for _, object := range objects {
		if in := object.GetNamespace(); in != "" && !slices.Contains(names, in) {
			names = append(names, in)
		}
	}
	slices.Sort(names)
	return &server.Sources{
		From: strings.Join(o.Files, ", "), Files: true, Namespace: namespace, Graph: newSurveys(read).graph,
		Namespaces: func(context.Context) []string { return names },
		Preview:    filePreview(read),
	}, nil
}

// openBrowser has the system open an address, if it can.
func openBrowser(ctx context.Context, address string) {
	name, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }()
	}
}
