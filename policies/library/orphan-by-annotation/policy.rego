# An annotation decides: on an object, that it stays when its last owner goes; on an
# owner that is being deleted, that its dependents stay.
package gleaner

import data.gleaner.sdk.meta
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

collect := unread if withheld

else := verdict.because(verdict.orphan, sprintf("it has the annotation %s", [shown])) if marked

else := verdict.abstain

propagate := unread if withheld

else := verdict.because(verdict.orphan, sprintf("their owner has the annotation %s", [shown])) if marked

else := verdict.abstain

validate := settings.checked({"annotation": "text", "value": "text"})

annotation := settings.get("annotation", "orphan-on-owner-deletion")

value := settings.get("value", "true")

shown := sprintf("%s=%s", [annotation, value])

marked if meta.annotated(annotation, value)

# withheld: an annotation that nobody may read may well be there.
withheld if {
	some name in input.withheld
	name in {"object", "metadata.annotations"}
}

unread := verdict.because(verdict.wait_for("10m"), "its annotations are withheld: the policy needs the object, and an account that may read it")
