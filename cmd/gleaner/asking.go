package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/replicas"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
)

// operatorFlags say where the operator is, for commands that ask it.
type operatorFlags struct {
	namespace, endpoint, ca, tokenOf string

	flags *pflag.FlagSet // that these are among
}

// endpointVariable is the environment variable for --endpoint.
const endpointVariable = "GLEANER_ENDPOINT"

// at returns the endpoint to ask: the flag's, or else that of the environment, unless
// the flags say that it is elsewhere. From is what it is from.
func (o *operatorFlags) at() (endpoint, from string) {
	if o.flags != nil && (o.flags.Changed("endpoint") || o.flags.Changed("operator-namespace")) {
		return o.endpoint, "--endpoint"
	}
	if value := os.Getenv(endpointVariable); value != "" {
		return value, "$" + endpointVariable
	}
	return o.endpoint, "--endpoint"
}

func (o *operatorFlags) addTo(flags *pflag.FlagSet) {
	o.flags = flags
	flags.StringVar(&o.namespace, "operator-namespace", "", "the operator's `namespace`; by default its pods are looked for in all")
	flags.StringVar(&o.endpoint, "endpoint", "", "`URL` of the operator's metrics address, to ask it there and not by a port-forward to its pods. Default $"+endpointVariable+", unless --operator-namespace is given")
	flags.StringVar(&o.ca, "endpoint-ca", "", "`file` with the certificate that the endpoint's is signed by; on loopback it need not be signed by anybody")
	if token := flags.Lookup("token"); token != nil {
		token.Hidden = false // it is what the operator knows clients by
	}
	flags.StringVar(&o.tokenOf, "token-of", "", "ask the operator as this service account, `NAMESPACE/NAME`, where the kubeconfig has no token")
}

func (o *operatorFlags) validate() error {
	err := o.where(nil).Validate()
	if _, from := o.at(); err != nil && from != "--endpoint" {
		return kubectl.Usage("%s: %w", from, err)
	}
	if err != nil {
		return kubectl.Usage("%w", err)
	}
	return nil
}

func (o *operatorFlags) where(config *rest.Config) replicas.Where {
	endpoint, _ := o.at()
	return replicas.Where{Config: config, Namespace: o.namespace, Endpoint: endpoint, CAFile: o.ca, TokenOf: o.tokenOf}
}

// doing is what a command is at, for who waits.
type doing struct{ now atomic.Pointer[string] }

// shown begins to show it on a terminal, and returns what ends that.
func (d *doing) shown(errOut io.Writer) (over func()) {
	return kubectl.Progress(errOut, func() string {
		if text := d.now.Load(); text != nil {
			return *text
		}
		return ""
	})
}

func (d *doing) set(text string) { d.now.Store(&text) }

// section is a part of what a command tells: a title, and lines below it.
type section struct {
	out     io.Writer
	palette kubectl.Palette
}

func (s section) title(format string, args ...any) {
	kubectl.Fprintf(s.out, "\n%s\n", s.palette.Paint(kubectl.Strong, fmt.Sprintf(format, args...)))
}

// field writes a named value; nothing, if there is none.
func (s section) field(name, value string, color kubectl.Color) {
	if value == "" {
		return
	}
	kubectl.Fprintf(s.out, "    %-14s%s\n", name+":", s.palette.Paint(color, oneLine(value)))
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// indented is a table whose lines begin with two spaces.
func indented(out io.Writer, t kubectl.Table, p kubectl.Palette) error {
	var b strings.Builder
	if err := t.Write(&b, p); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		kubectl.Fprintf(out, "  %s", kubectl.Safe(line))
	}
	return nil
}
