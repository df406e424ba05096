# An object is kept while an owner with the same name and another UID exists, for example
# after a backup is restored and the owners were recreated.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         for:
#           type: string
#           pattern: '^([0-9]{1,9}([.][0-9]{1,9})?(h|m|s|ms))+$'
#           description: "How long an object is kept, from when it was first seen without an owner, such as 72h, at most 720h. If absent, there is no limit."
#         recheck:
#           type: string
#           pattern: '^([0-9]{1,9}([.][0-9]{1,9})?(h|m|s|ms))+$'
#           description: "Interval of evaluations of a kept object, such as 90s or 1h30m, at most 720h. If absent, 5m."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.clock
import data.gleaner.sdk.owners
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

collect := verdict.abstain if count(lost) == 0

else := verdict.abstain if over

else := verdict.act(array.concat(beside, above)) if count(beside) + count(above) > 0

else := verdict.with_reason(keep, sprintf("%s %s exists with another UID: %s", [recreated[0].kind, recreated[0].name, advice])) if count(recreated) > 0

else := verdict.with_reason(keep, sprintf("it is unknown whether %s %s was recreated: %s", [unread[0].kind, unread[0].name, unread[0].why])) if count(unread) > 0

else := verdict.abstain

validate := settings.validate({"for": "duration", "recheck": "duration"})

keep := verdict.wait_for(settings.get("recheck", "5m"))

advice := "update or remove the object's ownerReferences, or delete it"

# lost are the absent owners.
lost := owners.with_status("Absent")

# over: the quarantine period of the settings is over.
over if clock.without_owners_for(settings.all.for)

namespace := object.get(input.object.metadata, "namespace", "")

# An owner is in the object's namespace or cluster-scoped. Only the host knows which: a
# get with a namespace for a cluster-scoped kind is Invalid.
beside := [read(i, owner, namespace) |
	namespace != ""
	some i, owner in lost
	not input.results[id(i, namespace)]
]

above := [read(i, owner, "") |
	some i, owner in lost
	needs_above(i)
	not input.results[id(i, "")]
]

needs_above(_) if namespace == ""

needs_above(i) if input.results[id(i, namespace)].error.reason == "Invalid"

id(i, "") := sprintf("cluster-%d", [i])

id(i, ns) := sprintf("namespace-%d", [i]) if ns != ""

read(i, owner, ns) := {"id": id(i, ns), "get": object.union(target(owner.reference), where(ns))}

target(reference) := {"apiVersion": reference.apiVersion, "kind": reference.kind, "name": reference.name}

where("") := {}

where(ns) := {"namespace": ns} if ns != ""

# answers are what came of reading the owners of these names.
answers := [{"kind": owner.reference.kind, "name": owner.reference.name, "uid": owner.reference.uid, "result": result(i)} |
	some i, owner in lost
]

result(i) := input.results[id(i, "")] if needs_above(i)

else := input.results[id(i, namespace)]

recreated := [a | some a in answers; a.result.object.metadata.uid != a.uid]

unread := array.concat(
	[object.union(a, {"why": sprintf("it cannot be read, %s", [a.result.error.reason])}) | some a in answers; a.result.error.reason != "NotFound"],
	[object.union(a, {"why": "it is there after all"}) | some a in answers; a.result.object.metadata.uid == a.uid],
)
