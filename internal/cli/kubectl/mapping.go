package kubectl

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
)

// Mapping returns the resource with a name.
func (f *Flags) Mapping(word string) (*meta.RESTMapping, error) {
	mapper, err := f.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("discover types: %w", err)
	}
	return ServedMapping(mapper, word)
}

// ServedMapping returns the resource with a name, among those that a server has.
func ServedMapping(mapper meta.RESTMapper, word string) (*meta.RESTMapping, error) {
	mapping, err := mappingOf(mapper, word)
	switch {
	case meta.IsNoMatchError(err):
		return nil, fmt.Errorf("the server doesn't have a resource type %q", word)
	case err != nil:
		return nil, fmt.Errorf("discover types: %w", err) // discovery failed, the resource may exist
	}
	return mapping, nil
}
