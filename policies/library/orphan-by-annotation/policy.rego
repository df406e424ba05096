# An annotation keeps an object when its last owner is deleted; on an owner that is being
# deleted, it keeps the dependents.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         annotation:
#           type: string
#           pattern: '^[A-Za-z0-9._/-]+$'
#           description: "Key of the annotation. If absent, orphan-on-owner-deletion."
#         value:
#           type: string
#           minLength: 1
#           description: "Value that the annotation must have: a string, so put true in quotes. If absent, true."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.meta
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

collect := unread if withheld

else := verdict.with_reason(verdict.orphan, sprintf("it has the annotation %s", [shown])) if marked

else := verdict.abstain

propagate := unread if withheld

else := verdict.with_reason(verdict.orphan, sprintf("their owner has the annotation %s", [shown])) if marked

else := verdict.abstain

validate := settings.validate({"annotation": "text", "value": "text"})

annotation := settings.get("annotation", "orphan-on-owner-deletion")

value := settings.get("value", "true")

shown := sprintf("%s=%s", [annotation, value])

marked if meta.has_annotation(annotation, value)

# withheld: the object may have the annotation, but the policy does not receive it.
withheld if {
	some name in input.withheld
	name in {"object", "metadata.annotations"}
}

unread := verdict.with_reason(verdict.wait_for("10m"), "its annotations are withheld: set needs: Object, and a service account that may read it")
