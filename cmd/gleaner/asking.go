package main

import (
	"fmt"
	"io"
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
}

func (o *operatorFlags) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.namespace, "operator-namespace", "", "the operator's `namespace`; by default its pods are looked for in all")
	flags.StringVar(&o.endpoint, "endpoint", "", "`URL` of the operator's metrics address, to ask it there and not by a port-forward to its pods")
	flags.StringVar(&o.ca, "endpoint-ca", "", "`file` with the certificate that the endpoint's is signed by; on loopback it need not be signed by anybody")
	if token := flags.Lookup("token"); token != nil {
		token.Hidden = false // it is what the operator knows clients by
	}
	flags.StringVar(&o.tokenOf, "token-of", "", "ask the operator as this service account, `NAMESPACE/NAME`, where the kubeconfig has no token")
}

func (o *operatorFlags) validate() error {
	if err := o.where(nil).Validate(); err != nil {
		return kubectl.Usage("%w", err)
	}
	return nil
}

func (o *operatorFlags) where(config *rest.Config) replicas.Where {
	return replicas.Where{Config: config, Namespace: o.namespace, Endpoint: o.endpoint, CAFile: o.ca, TokenOf: o.tokenOf}
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
