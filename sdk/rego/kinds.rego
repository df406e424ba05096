# Package kinds names kinds as settings do: "apps/StatefulSet", and "Pod" for one of
# the core group, whatever the version.
package gleaner.sdk.kinds

import data.gleaner.sdk.owners

# named is the name of a kind of a group, which is "" for the core group.
named(group, kind) := kind if group == ""

else := sprintf("%s/%s", [group, kind])

# of is the name of a kind of an apiVersion.
of(version, kind) := named(owners.group_of(version), kind)

# object is the name of the object's own kind.
object := of(input.object.apiVersion, input.object.kind)

# dependents are the names of the kinds among the object's dependents.
dependents := [named(of_kind.group, of_kind.kind) | some of_kind in input.dependents.byKind]
