// Package kubectl holds what the commands have in common that ask a cluster: the
// flags and arguments that kubectl has, completion, output, progress and errors.
//
// It knows nothing of what is asked.
package kubectl

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
)

// Exit codes that all commands have in common.
const (
	ExitFailure = 1 // something went wrong
	ExitUsage   = 2 // the command line makes no sense
)

// Exit is an error with the exit code that it leads to. Err may be nil: then all has
// been said.
type Exit struct {
	Code int
	Err  error
}

// Error implements error.
func (e Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns what went wrong.
func (e Exit) Unwrap() error { return e.Err }

// Usage is a command line that makes no sense.
func Usage(format string, args ...any) error { return Exit{ExitUsage, fmt.Errorf(format, args...)} }

// Names of the binary, by which it is told how it was called.
const (
	plugin    = "kubectl-gleaner"
	completer = "kubectl_complete-gleaner"
)

// Called says by what words the program was called, from its first argument, and
// whether it is to complete a command line for kubectl, which asks for that by a
// name of its own.
func Called(program string) (name string, completes bool) {
	switch base := strings.TrimSuffix(filepath.Base(program), ".exe"); base {
	case plugin:
		return "kubectl gleaner", false
	case completer:
		return "kubectl gleaner", true
	default:
		return "gleaner", false
	}
}

// Flags are those of a command that asks a cluster. Create them with NewFlags.
type Flags struct {
	*genericclioptions.ConfigFlags

	AllNamespaces bool
	Output        string   // one of the command's; "" is for people
	Files         []string // to be asked in place of a cluster

	outputs []string
}

// NewFlags returns the flags of a command that can write these outputs, beside the
// one for people.
func NewFlags(outputs ...string) *Flags {
	return &Flags{ConfigFlags: genericclioptions.NewConfigFlags(true), outputs: outputs}
}

// shown are the flags for reaching a cluster that a help text shows. The others are
// there as well, as they are for kubectl.
var shown = []string{"kubeconfig", "context", "namespace", "as", "request-timeout"}

// AddTo adds the flags for reaching a cluster, and -o.
func (f *Flags) AddTo(cmd *cobra.Command) {
	reach := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddFlags(reach)
	reach.VisitAll(func(flag *pflag.Flag) { flag.Hidden = !slices.Contains(shown, flag.Name) })
	cmd.Flags().AddFlagSet(reach)
	if len(f.outputs) != 0 {
		cmd.Flags().StringVarP(&f.Output, "output", "o", "", "`format`: "+list(f.outputs)+"; without it, text for people")
		_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f.outputs, cobra.ShellCompDirectiveNoFileComp))
	}
	f.completeFlags(cmd)
}

// AddAllNamespaces adds -A.
func (f *Flags) AddAllNamespaces(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.AllNamespaces, "all-namespaces", "A", false, "in all namespaces")
}

// AddFiles adds -f.
func (f *Flags) AddFiles(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.Files, "filename", "f", nil,
		"ask this `file` in place of a cluster: YAML or JSON with objects, as kubectl get -o yaml writes them; - is the standard input")
}

// Validate checks what can be checked before a cluster is asked.
func (f *Flags) Validate() error {
	if f.Output != "" && !slices.Contains(f.outputs, f.Output) {
		return Usage("--output=%s: use %s, or leave it out", f.Output, list(f.outputs))
	}
	if f.AllNamespaces && *f.Namespace != "" {
		return Usage("--all-namespaces and --namespace=%s: use one of them", *f.Namespace)
	}
	return nil
}

// list is words as in "a, b or c".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// InNamespace is the namespace that was asked for, or else the context's.
func (f *Flags) InNamespace() (string, error) {
	if len(f.Files) != 0 {
		return *f.Namespace, nil // no cluster has a say
	}
	namespace, _, err := f.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("load kubeconfig: %w; name a good file with --kubeconfig", err)
	}
	return namespace, nil
}

// Config says how to reach the cluster. Flow control is the API server's.
func (f *Flags) Config() (*rest.Config, error) {
	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig: %w; name a good file with --kubeconfig", err)
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config, nil
}

// Message is what to tell of an error: as kubectl does where it is an API server's.
func Message(program string, err error) string {
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return fmt.Sprintf("Error from server (%s): %v", answer.Status().Reason, err)
	}
	return fmt.Sprintf("%s: %v", program, err)
}
