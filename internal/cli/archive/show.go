package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/restore"
)

const whichEntry = " The newest entry is used; for an older one, use --uid or --id."

func showCommand() *cobra.Command {
	o, id := newOptions("json", "yaml"), ""
	cmd := &cobra.Command{
		Use:   "show KIND/NAME | --uid UID | --id ID",
		Short: "Print an archived object",
		Long:  "Print an archived object as it was, as YAML or with -o json." + whichEntry + reading + exitCodes,
		Example: `  gleaner archive show deployment/web -n shop
  gleaner archive show secret/password -n shop --identity key.txt
  gleaner archive show --uid 0f3c8d1e-… -o json`,
		ValidArgsFunction: o.CompleteTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, found, err := o.entry(cmd.Context(), args, id)
			if err != nil {
				return err
			}
			format := o.Output
			if format == "" {
				format = "yaml"
			}
			return printer.Write(cmd.OutOrStdout(), format, found.Object)
		},
	}
	o.addTo(cmd, true).StringVar(&id, "id", "", "`ID` of the entry")
	return cmd
}

// entry reads the entry that the arguments or the flags name.
func (o *options) entry(ctx context.Context, args []string, id string) (archive.Header, *unstructured.Unstructured, error) {
	given := 0
	for _, is := range []bool{len(args) != 0, o.uid != "", id != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return archive.Header{}, nil, exit.Usagef("specify exactly one of KIND/NAME, --uid and --id")
	}
	s, err := o.selection(args, time.Now())
	if err != nil {
		return archive.Header{}, nil, err
	}
	if len(args) != 0 && s.Name == "" {
		return archive.Header{}, nil, exit.Usagef("an object is required: write KIND/NAME or KIND NAME")
	}
	identities, err := o.archive.Identities()
	if err != nil {
		return archive.Header{}, nil, err
	}
	r, err := o.archive.Open(ctx, o.Config)
	if err != nil {
		return archive.Header{}, nil, err
	}
	defer r.Close()
	h, err := one(ctx, r, s, id)
	if err != nil {
		return h, nil, err
	}
	object, err := entries.Object(ctx, r, h, identities)
	return h, object, err
}

func diffCommand() *cobra.Command {
	o, id := newOptions(), ""
	cmd := &cobra.Command{
		Use:   "diff KIND/NAME | --uid UID | --id ID",
		Short: "Compare an archived object with the one of its name now",
		Long: "Compare an archived object with the object of its name in the cluster, without status and what the API server sets. Values of\n" +
			"Secrets are not printed." + whichEntry + reading +
			"\n\nExit codes: 0 if they are equal; 1 if they differ or the object does not exist; 2 for an invalid command line; 3 for an error.",
		Example: `  gleaner archive diff deployment/web -n shop
  gleaner archive diff --uid 0f3c8d1e-…`,
		ValidArgsFunction: o.CompleteTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			different, err := o.diff(cmd.Context(), args, id, cmd.OutOrStdout())
			var status exit.Error
			switch {
			case errors.As(err, &status):
				return err
			case err != nil:
				return exit.Error{Code: exitDiffFailed, Err: err}
			case different:
				return exit.Error{Code: exitDifferent}
			}
			return nil
		},
	}
	o.addTo(cmd, true).StringVar(&id, "id", "", "`ID` of the entry")
	return cmd
}

// Exit codes of gleaner archive diff.
const (
	exitDifferent  = 1
	exitDiffFailed = 3
)

func (o *options) diff(ctx context.Context, args []string, id string, out io.Writer) (different bool, err error) {
	h, archived, err := o.entry(ctx, args, id)
	if err != nil {
		return false, err
	}
	live, err := o.live(ctx, h)
	if err != nil {
		return false, err
	}
	text, err := Compare(archived, live)
	if err != nil || text == "" {
		return false, err
	}
	printer.Fprintf(out, "%s", printer.Safe(text)) // the writer escapes control characters
	return true, nil
}

// live reads the object that has the name of an archived one; nil: it does not exist.
func (o *options) live(ctx context.Context, h archive.Header) (*unstructured.Unstructured, error) {
	config, err := o.Config()
	if err != nil {
		return nil, err
	}
	mapper, err := o.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("discover types: %w", err)
	}
	return Live(ctx, config, mapper, h)
}

// Live reads the object that has the name of an archived one; nil: it does not exist.
func Live(ctx context.Context, config *rest.Config, mapper meta.RESTMapper, h archive.Header) (*unstructured.Unstructured, error) {
	gvk := schema.FromAPIVersionAndKind(h.Object.APIVersion, h.Object.Kind)
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	live, err := client.Resource(mapping.Resource).Namespace(h.Object.Namespace).Get(ctx, h.Object.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// Compare returns the unified diff of an archived object and a live one, without status and what the API server sets; "" if they are
// equal. Live is nil if there is none. Values of Secrets are masked.
func Compare(archived, live *unstructured.Unstructured) (string, error) {
	archived = comparable(archived)
	after := ""
	if live != nil {
		live = comparable(live)
		maskSecrets(archived, live)
		data, err := yaml.Marshal(live.Object)
		if err != nil {
			return "", fmt.Errorf("encode object: %w", err)
		}
		after = string(data)
	} else {
		maskSecrets(archived, &unstructured.Unstructured{})
	}
	before, err := yaml.Marshal(archived.Object)
	if err != nil {
		return "", fmt.Errorf("encode object: %w", err)
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(string(before)), B: linesOf(after), FromFile: "archived", ToFile: "live", Context: 3,
	})
}

func linesOf(text string) []string {
	if text == "" {
		return nil
	}
	return difflib.SplitLines(text)
}

// comparable returns an object without status and what the API server sets.
func comparable(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(o.Object, "status")
	annotations := o.GetAnnotations()
	delete(annotations, restore.FromAnnotation)
	if o.SetAnnotations(annotations); len(annotations) == 0 {
		o.SetAnnotations(nil)
	}
	refs := o.GetOwnerReferences()
	for i := range refs {
		refs[i].UID = "" // differs after a restore
	}
	if len(refs) != 0 {
		o.SetOwnerReferences(refs)
	}
	return o
}

// maskSecrets replaces the values of Secrets, so that only whether they are equal can be seen.
func maskSecrets(archived, live *unstructured.Unstructured) {
	if archived.GroupVersionKind().GroupKind() != (schema.GroupKind{Kind: "Secret"}) {
		return
	}
	for _, field := range []string{"data", "stringData"} {
		before, _, _ := unstructured.NestedMap(archived.Object, field)
		after, _, _ := unstructured.NestedMap(live.Object, field)
		maskedBefore, maskedAfter := mask(before, after, "*** (archived)"), mask(after, before, "*** (live)")
		setMap(archived, field, maskedBefore)
		setMap(live, field, maskedAfter)
	}
	for _, o := range []*unstructured.Unstructured{archived, live} { // it may have all of the data
		annotations := o.GetAnnotations()
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
		if len(annotations) != 0 {
			o.SetAnnotations(annotations)
		} else {
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
		}
	}
}

// mask returns values of which only those that differ from others can be recognized.
func mask(values, others map[string]any, different string) map[string]any {
	masked := map[string]any{}
	for key, value := range values {
		masked[key] = "***"
		if other, both := others[key]; both && !reflect.DeepEqual(other, value) {
			masked[key] = different
		}
	}
	return masked
}

func setMap(o *unstructured.Unstructured, field string, values map[string]any) {
	if len(values) != 0 {
		o.Object[field] = values
	}
}
