# A foreground deletion deletes dependents that block it first, and others after the owner.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         owners:
#           type: array
#           minItems: 1
#           items: {type: string, pattern: '^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*$'}
#           description: "Kinds of owners to wait for, as Kind or group/Kind, such as apps/StatefulSet. If absent, all kinds."
#         recheck:
#           type: string
#           pattern: '^([0-9]{1,9}([.][0-9]{1,9})?(h|m|s|ms))+$'
#           description: "Interval of evaluations of a waiting object, such as 90s or 1h30m, at most 720h. If absent, 1m."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.owners
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

collect := verdict.abstain if count(deferring) == 0

else := verdict.abstain if blocks

else := verdict.with_reason(
	verdict.wait_for(settings.get("recheck", "1m")),
	sprintf("it does not block %s %s, which is being deleted in foreground", [deferring[0].reference.kind, deferring[0].reference.name]),
)

validate := settings.validate({"owners": "kinds", "recheck": "duration"})

waiting := owners.with_status("Waiting")

# deferring are the owners whose deletion the object waits for.
deferring := [owner | some owner in waiting; chosen(owner.reference)]

chosen(reference) if kinds.of(reference.apiVersion, reference.kind) in settings.all.owners

chosen(_) if not settings.all.owners

# blocks: the object blocks the deletion of at least one owner.
blocks if {
	some owner in waiting
	owner.reference.blockOwnerDeletion == true
}
