package run

import (
	"errors"
	"fmt"
	"math"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gleaner-dev/gleaner/operator/modulestore"
)

// moduleOptions are the flags of run that limit modules.
type moduleOptions struct {
	tenantModules           bool
	maxModules              int
	maxModulesPerNamespace  int
	maxModulesSize          string
	maxModulesNamespaceSize string
}

func defaultModuleOptions() moduleOptions {
	return moduleOptions{
		tenantModules: true, maxModules: 500, maxModulesPerNamespace: 20, maxModulesSize: "512Mi", maxModulesNamespaceSize: "32Mi",
	}
}

func (o *moduleOptions) addTo(flags *pflag.FlagSet) {
	flags.BoolVar(&o.tenantModules, "tenant-modules", o.tenantModules,
		"allow PolicyModules; if false, policies and finalizers of namespaces can use ClusterPolicyModules and fixed verdicts only")
	flags.IntVar(&o.maxModules, "max-modules", o.maxModules,
		"maximum number of modules in the cluster; ClusterPolicyModules come first, then the oldest PolicyModules; 0 is unlimited")
	flags.IntVar(&o.maxModulesPerNamespace, "max-modules-per-namespace", o.maxModulesPerNamespace,
		"maximum number of PolicyModules in one namespace; the oldest come first; 0 is unlimited")
	flags.StringVar(&o.maxModulesSize, "max-modules-size", o.maxModulesSize,
		"maximum total size of the modules in the cluster, decompressed, as a `quantity`; 0 is unlimited")
	flags.StringVar(&o.maxModulesNamespaceSize, "max-modules-size-per-namespace", o.maxModulesNamespaceSize,
		"maximum total size of the PolicyModules in one namespace, decompressed, as a `quantity`; 0 is unlimited")
}

// quota returns the limits, or an error for every invalid one.
func (o *moduleOptions) quota() (modulestore.Quota, error) {
	q := modulestore.Quota{Modules: o.maxModules, ModulesPerNamespace: o.maxModulesPerNamespace}
	var wrong []error
	for _, f := range []struct {
		name string
		n    int
	}{{"max-modules", o.maxModules}, {"max-modules-per-namespace", o.maxModulesPerNamespace}} {
		if f.n < 0 {
			wrong = append(wrong, fmt.Errorf("--%s=%d: use a positive number, or 0 for no limit", f.name, f.n))
		}
	}
	for _, f := range []struct {
		name, text string
		to         *int64
	}{{"max-modules-size", o.maxModulesSize, &q.Size}, {"max-modules-size-per-namespace", o.maxModulesNamespaceSize, &q.SizePerNamespace}} {
		size, err := resource.ParseQuantity(f.text)
		if err != nil || size.Sign() < 0 || size.Cmp(*resource.NewQuantity(math.MaxInt64, resource.BinarySI)) > 0 {
			wrong = append(wrong, fmt.Errorf("--%s=%s: use a quantity such as 32Mi, or 0 for no limit", f.name, f.text))
			continue
		}
		*f.to = size.Value()
	}
	return q, errors.Join(wrong...)
}
