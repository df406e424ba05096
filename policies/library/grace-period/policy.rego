# An object goes only some time after its last owner went.
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.meta
import data.gleaner.sdk.owners
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

collect := verdict.abstain if {
	settings.get("foreground", "Delay") == "Abstain"
	count(owners.standing("Waiting")) > 0
}

else := verdict.because(verdict.wait_for("10m"), "its annotations are withheld: the policy needs the object, and an account that may read it") if withheld

else := verdict.because(verdict.wait_for("10m"), sprintf("its annotation %s is no duration: write one such as 90s or 1h30m", [annotation])) if {
	own
	not settings.is_duration(own)
}

else := verdict.because(verdict.delete_after(grace), sprintf("it has %s after its last owner went", [grace]))

validate := settings.checked({
	"after": "duration",
	"byKind": "durations",
	"annotation": "text",
	"foreground": ["Delay", "Abstain"],
})

# grace is the object's own, else that of its kind, else that of all.
grace := own if own

else := of_kind if of_kind

else := settings.get("after", "1h")

of_kind := settings.all.byKind[kinds.object]

annotation := settings.all.annotation

own := meta.annotations[annotation]

# withheld: there may well be an annotation that nobody may read.
withheld if {
	annotation
	some name in input.withheld
	name in {"object", "metadata.annotations"}
}
