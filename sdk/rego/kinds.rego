# Package kinds formats kinds as in settings: "apps/StatefulSet", or "Pod" for the
# core group, without a version.
package gleaner.sdk.kinds

import data.gleaner.sdk.owners

# named formats a kind of a group, which is "" for the core group.
named(group, kind) := kind if group == ""

else := sprintf("%s/%s", [group, kind])

# of formats a kind of an apiVersion.
of(version, kind) := named(owners.group_of(version), kind)

# object is the kind of the object.
object := of(input.object.apiVersion, input.object.kind)

# dependents are the kinds of the object's dependents.
dependents := [named(of_kind.group, of_kind.kind) | some of_kind in input.dependents.byKind]
