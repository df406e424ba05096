# An object is deleted only some time after its last owner is gone.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         after:
#           type: string
#           pattern: '^([0-9]{1,9}([.][0-9]{1,9})?(h|m|s|ms))+$'
#           description: "How long an object is kept after its last owner is gone, such as 90s or 1h30m, at most 720h. If absent, 1h."
#         byKind:
#           type: object
#           patternProperties: {'^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*$': {type: string, pattern: '^([0-9]{1,9}([.][0-9]{1,9})?(h|m|s|ms))+$'}}
#           additionalProperties: false
#           description: "Durations by kind, as Kind or group/Kind, such as {PersistentVolumeClaim: 168h}, instead of after. If absent, after applies to all kinds."
#         annotation:
#           type: string
#           pattern: '^[A-Za-z0-9._/-]+$'
#           description: "Key of an annotation with the duration for one object, instead of byKind and after. If absent, annotations do not matter."
#         foreground:
#           type: string
#           enum: [Delay, Abstain]
#           description: "While an owner in foreground deletion waits for the object: Delay keeps it for the same time, Abstain leaves it to other policies. If absent, Delay."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.meta
import data.gleaner.sdk.owners
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

collect := verdict.abstain if {
	settings.get("foreground", "Delay") == "Abstain"
	count(owners.with_status("Waiting")) > 0
}

else := verdict.with_reason(verdict.wait_for("10m"), "its annotations are withheld: set needs: Object, and a service account that may read it") if withheld

else := verdict.with_reason(verdict.wait_for("10m"), sprintf("its annotation %s is not a duration: write one such as 90s or 1h30m", [annotation])) if {
	own
	not settings.is_duration(own)
}

else := verdict.with_reason(verdict.delete_after(grace), sprintf("it is deleted %s after its last owner is gone", [grace]))

validate := settings.validate({
	"after": "duration",
	"byKind": "durations",
	"annotation": "text",
	"foreground": ["Delay", "Abstain"],
})

# grace is that of the object's annotation, of its kind, or the default.
grace := own if own

else := of_kind if of_kind

else := settings.get("after", "1h")

of_kind := settings.all.byKind[kinds.object]

annotation := settings.all.annotation

own := meta.annotations[annotation]

# withheld: the object may have an annotation that the policy does not receive.
withheld if {
	annotation
	some name in input.withheld
	name in {"object", "metadata.annotations"}
}
