# An object can be deleted only with the approval of another user.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         atMost:
#           type: string
#           pattern: '^([0-9]{1,9}([.][0-9]{1,9})?(h|m|s|ms))+$'
#           description: "How long from now an approval may last, such as 90m or 12h, at most 720h. If absent, 24h."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.clock
import data.gleaner.sdk.meta
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

protect := verdict.deny(sprintf("%s: another user with the permission to approve has to run %s", [problems[0], command])) if count(problems) > 0

else := verdict.abstain

validate := settings.validate({"atMost": "duration"})

at_most := settings.get("atMost", "24h")

uid := object.get(meta.annotations, "approval.gleaner.dev/uid", "")

approver := object.get(meta.annotations, "approval.gleaner.dev/approver", "")

until := object.get(meta.annotations, "approval.gleaner.dev/until", "")

# problems are why there is no approval. One that can't be read is none.
problems := [text |
	some [wrong, text] in [
		[approver == "", "its deletion is not approved"],
		[approver == input.userInfo.username, "you have approved its deletion yourself"],
		[uid != input.object.metadata.uid, "the approval is for an object with another UID"],
		[valid == false, sprintf("the approval has expired, or is for longer than %s", [at_most])],
	]
	wrong
]

default valid := false

valid if {
	age := clock.since(until)
	age < 0
	0 - age <= time.parse_duration_ns(at_most)
}

command := sprintf("kubectl annotate --overwrite %s %s%s %s", [
	lower(input.object.kind), input.object.metadata.name, namespace,
	concat(" ", [
		sprintf("approval.gleaner.dev/uid=%s", [input.object.metadata.uid]),
		"approval.gleaner.dev/approver=USER",
		"approval.gleaner.dev/until=TIME",
	]),
])

namespace := sprintf(" -n %s", [input.object.metadata.namespace]) if input.object.metadata.namespace

else := ""
