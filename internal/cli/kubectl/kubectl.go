// Package kubectl provides what commands for clusters have in common: kubectl's flags and
// arguments, completion, output, progress and errors.
package kubectl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/operator/escape"
)

// Names of the binary when called by kubectl.
const (
	plugin           = "kubectl-gleaner"
	completionPlugin = "kubectl_complete-gleaner"
)

// ProgramName returns the name under which the program was called, from its first argument, and
// whether kubectl called it for shell completion.
func ProgramName(program string) (name string, completes bool) {
	switch base := strings.TrimSuffix(filepath.Base(program), ".exe"); base {
	case plugin:
		return "kubectl gleaner", false
	case completionPlugin:
		return "kubectl gleaner", true
	default:
		return "gleaner", false
	}
}

// Flags are the flags of a command for a cluster. Create them with NewFlags.
type Flags struct {
	*genericclioptions.ConfigFlags

	AllNamespaces bool
	Output        string   // one of the command's formats; "" is text
	Files         []string // to read instead of a cluster

	outputs   []string
	readFiles bool // the command has -f
}

// NewFlags returns the flags of a command with these output formats, in addition to text.
func NewFlags(outputs ...string) *Flags {
	return &Flags{ConfigFlags: genericclioptions.NewConfigFlags(true), outputs: outputs}
}

// visibleFlags are the connection flags that are shown in the help text. kubectl's other connection
// flags are supported but hidden.
var visibleFlags = []string{"kubeconfig", "context", "namespace", "as", "request-timeout"}

// AddTo adds the connection flags and -o.
func (f *Flags) AddTo(cmd *cobra.Command) {
	reach := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddFlags(reach)
	reach.VisitAll(func(flag *pflag.Flag) { flag.Hidden = !slices.Contains(visibleFlags, flag.Name) })
	cmd.Flags().AddFlagSet(reach)
	if len(f.outputs) != 0 {
		cmd.Flags().StringVarP(&f.Output, "output", "o", "", "output `format`: "+joinWords(f.outputs)+"; by default text")
		_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f.outputs, cobra.ShellCompDirectiveNoFileComp))
	}
	f.completeFlags(cmd)
}

// AddAllNamespaces adds -A.
func (f *Flags) AddAllNamespaces(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.AllNamespaces, "all-namespaces", "A", false, "all namespaces")
}

// AddFiles adds -f.
func (f *Flags) AddFiles(cmd *cobra.Command) {
	f.readFiles = true
	cmd.Flags().StringArrayVarP(&f.Files, "filename", "f", nil,
		"`file` to read instead of a cluster: YAML or JSON with objects, such as the output of kubectl get -o yaml; - is standard input")
}

// Validate checks the flags.
func (f *Flags) Validate() error {
	if f.Output != "" && !slices.Contains(f.outputs, f.Output) {
		return exit.Usagef("--output=%s: use %s, or omit it", f.Output, joinWords(f.outputs))
	}
	if f.AllNamespaces && *f.Namespace != "" {
		return exit.Usagef("--all-namespaces and --namespace=%s: use one of them", *f.Namespace)
	}
	return nil
}

// joinWords joins words as in "a, b or c".
func joinWords(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// ResolveNamespace returns the namespace of -n, or else of the context.
func (f *Flags) ResolveNamespace() (string, error) {
	if len(f.Files) != 0 {
		return *f.Namespace, nil // the kubeconfig does not apply to files
	}
	namespace, _, err := f.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("load kubeconfig: %w; check --kubeconfig", err)
	}
	return namespace, nil
}

// Config returns the client configuration, without client-side rate limits.
func (f *Flags) Config() (*rest.Config, error) {
	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig: %w; check --kubeconfig", err)
	}
	if err := f.checkConfigured(config); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	ctrllog.SetLogger(logr.Discard()) // otherwise, its clients print a warning after 30 s
	return config, nil
}

// checkConfigured returns an error if neither a kubeconfig, nor a flag or variable, nor a pod
// defines the API server. cli-runtime then tries localhost:8080, as kubectl does.
func (f *Flags) checkConfigured(config *rest.Config) error {
	raw, err := f.ToRawKubeConfigLoader().RawConfig()
	if err != nil || len(raw.Clusters) != 0 || *f.APIServer != "" || os.Getenv("KUBERNETES_MASTER") != "" || config.Host != clientcmd.ClusterDefaults.Server {
		return nil //nolint:nilerr // the configuration was loaded before
	}
	advice := "set KUBECONFIG or --kubeconfig"
	if f.readFiles {
		advice += ", or read objects from files with -f"
	}
	return errors.New("no cluster is configured: " + advice)
}

// ErrorMessage returns the message of an error, in kubectl's format if it is from an API server.
func ErrorMessage(program string, err error) string {
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return fmt.Sprintf("Error from server (%s): %v", answer.Status().Reason, err)
	}
	return fmt.Sprintf("%s: %v", program, err)
}

// PrintError prints an error. If it has several lines, all but the first are indented, so that
// untrusted text can't forge a message.
func PrintError(out io.Writer, program string, err error) {
	lines := strings.Split(strings.TrimRight(ErrorMessage(program, err), "\n"), "\n")
	for i := range lines {
		lines[i] = escape.Lines(lines[i])
	}
	_, _ = fmt.Fprintln(out, strings.Join(lines, "\n  ")) // an error can't be reported either
}
