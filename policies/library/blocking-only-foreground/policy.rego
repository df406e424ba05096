# A foreground deletion takes what blocks it first, and the rest once the owner is gone.
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.owners
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

collect := verdict.abstain if count(deferring) == 0

else := verdict.abstain if blocks

else := verdict.because(
	verdict.wait_for(settings.get("recheck", "1m")),
	sprintf("it does not block %s %s, which is being deleted in foreground", [deferring[0].reference.kind, deferring[0].reference.name]),
)

validate := settings.checked({"owners": "kinds", "recheck": "duration"})

waiting := owners.standing("Waiting")

# deferring are the owners that it is to be kept for until they are gone.
deferring := [owner | some owner in waiting; chosen(owner.reference)]

chosen(reference) if kinds.of(reference.apiVersion, reference.kind) in settings.all.owners

chosen(_) if not settings.all.owners

# blocks: at least one owner can't go before it does.
blocks if {
	some owner in waiting
	owner.reference.blockOwnerDeletion == true
}
