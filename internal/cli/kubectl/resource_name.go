package kubectl

import "regexp"

// ResourceName matches resources with an optional group, such as replicasets.apps.
var ResourceName = regexp.MustCompile(`^[a-z][a-z0-9]*(\.[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`)
