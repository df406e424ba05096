# An object on which a user has a lien can't be deleted.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         overriddenBy:
#           type: array
#           minItems: 1
#           items: {type: string, minLength: 1}
#           description: "Groups whose members may delete objects regardless of liens, such as oncall. If absent, none."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.clock
import data.gleaner.sdk.meta
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

protect := verdict.abstain if owner == ""

else := verdict.abstain if expired

else := verdict.abstain if overridden

else := verdict.deny(sprintf("%s has a lien on it%s%s: ask them to remove the annotation lien.gleaner.dev/owner", [owner, term, reason]))

validate := settings.validate({"overriddenBy": "texts"})

owner := object.get(meta.annotations, "lien.gleaner.dev/owner", "")

until := object.get(meta.annotations, "lien.gleaner.dev/until", "")

overridden if {
	some group in input.userInfo.groups
	group in settings.get("overriddenBy", [])
}

# A time that can't be read never comes.
expired if clock.since(until) >= 0

term := sprintf(" until %s", [until]) if until != ""

else := ""

reason := sprintf(" (%s)", [text]) if {
	text := object.get(meta.annotations, "lien.gleaner.dev/reason", "")
	text != ""
} else := ""
