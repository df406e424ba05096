# A foreground deletion deletes dependents that block it first, and others after the owner.
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
