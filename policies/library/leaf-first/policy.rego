# An object is deleted after everything that depends on it, whether it blocks the deletion or not.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         first:
#           type: array
#           minItems: 1
#           items: {type: string, pattern: '^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*$'}
#           description: "Kinds of dependents to delete before all others, as Kind or group/Kind, such as apps/StatefulSet. If absent, none."
#         last:
#           type: array
#           minItems: 1
#           items: {type: string, pattern: '^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*$'}
#           description: "Kinds of dependents to delete after all others, as Kind or group/Kind, such as PersistentVolumeClaim. If absent, none."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

propagate := verdict.with_reason(verdict.with_order(verdict.foreground, waves), because) if count(waves) > 0

else := verdict.with_reason(verdict.foreground, because) if input.dependents.count > 0

else := verdict.abstain

validate := settings.validate({"first": "kinds", "last": "kinds"})

because := "it is deleted after its dependents"

# waves are those in first, and then all others but those in last: kinds that are in no wave come last.
waves := array.concat(in_waves(leading), in_waves(others))

leading := [kind | some kind in present; named(kind) in first]

others := [kind | some kind in present; not named(kind) in first; not named(kind) in last]

present := [{"group": of_kind.group, "kind": of_kind.kind} | some of_kind in input.dependents.byKind]

first := settings.get("first", [])

last := settings.get("last", [])

named(kind) := kinds.named(kind.group, kind.kind)

# in_waves divides kinds into waves of the largest size that there can be.
in_waves(list) := [wave |
	some i in numbers.range(0, 7)
	wave := array.slice(list, i * 8, (i + 1) * 8)
	count(wave) > 0
]
