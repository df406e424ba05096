package kubectl

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

const (
	completionTimeout = 5 * time.Second // longer than users wait
	maxCompletions    = 500             // maximum number of names
)

// CompleteTarget completes KIND/NAME and KIND NAME from the cluster. If it can't be read,
// there are no completions.
func (f *Flags) CompleteTarget(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(f.Files) != 0 {
		return nil, none
	}
	switch kind, name, slash := strings.Cut(begun, "/"); {
	case len(args) == 1 && !strings.Contains(args[0], "/"):
		return f.names(cmd.Context(), args[0], begun), none
	case len(args) != 0:
		return nil, none
	case slash:
		var words []string
		for _, n := range f.names(cmd.Context(), kind, name) {
			words = append(words, kind+"/"+n)
		}
		return words, none
	default:
		return f.kinds(begun), none | cobra.ShellCompDirectiveNoSpace
	}
}

// kinds returns the plural names of the resources that can be listed and deleted, with the
// group if the name is ambiguous.
func (f *Flags) kinds(begun string) []string {
	client, err := f.ToDiscoveryClient()
	if err != nil {
		return nil
	}
	lists, _ := client.ServerPreferredResources() // groups that can't be discovered are skipped
	times := map[string]int{}
	var found []schema.GroupResource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") {
				found = append(found, schema.GroupResource{Group: gv.Group, Resource: r.Name})
				times[r.Name]++
			}
		}
	}
	var words []string
	for _, r := range found {
		word := r.Resource
		if times[word] > 1 {
			word = r.String()
		}
		if strings.HasPrefix(word, begun) {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	return words
}

// names returns the names of the objects of a kind.
func (f *Flags) names(ctx context.Context, kind, begun string) []string {
	mapper, err := f.ToRESTMapper()
	if err != nil {
		return nil
	}
	mapping, err := mappingOf(mapper, kind)
	if err != nil {
		return nil
	}
	namespace, err := f.ResolveNamespace()
	if err != nil || mapping.Scope.Name() != "namespace" {
		namespace = ""
	}
	return f.list(ctx, mapping.Resource, namespace, begun)
}

func (f *Flags) list(ctx context.Context, resource schema.GroupVersionResource, namespace, begun string) []string {
	config, err := f.Config()
	if err != nil {
		return nil
	}
	client, err := metadata.NewForConfig(withTimeout(config))
	if err != nil {
		return nil
	}
	page, err := client.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: maxCompletions})
	if err != nil {
		return nil
	}
	var names []string
	for i := range page.Items {
		if strings.HasPrefix(page.Items[i].Name, begun) {
			names = append(names, page.Items[i].Name)
		}
	}
	return names
}

func withTimeout(config *rest.Config) *rest.Config {
	config.Timeout = completionTimeout
	return config
}

// completeFlags completes the values of -n and --context.
func (f *Flags) completeFlags(cmd *cobra.Command) {
	f.CompleteFlag(cmd, "namespace", schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	_ = cmd.RegisterFlagCompletionFunc("context", func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		raw, err := f.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for name := range raw.Contexts {
			if strings.HasPrefix(name, begun) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// CompleteFlag completes the value of a flag with the names of cluster-scoped objects.
func (f *Flags) CompleteFlag(cmd *cobra.Command, flag string, resource schema.GroupVersionResource) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return f.list(cmd.Context(), resource, "", begun), cobra.ShellCompDirectiveNoFileComp
	})
}
