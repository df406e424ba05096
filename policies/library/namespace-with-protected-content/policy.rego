# A namespace with protected objects can't be deleted.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         content:
#           type: array
#           minItems: 1
#           maxItems: 64
#           uniqueItems: true
#           items: {type: string, maxLength: 63, pattern: '^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[a-z0-9-]+/[A-Z][A-Za-z0-9]*$'}
#           description: "Kinds that are protected, as version/Kind or group/version/Kind, such as apps/v1/StatefulSet. If absent, v1/PersistentVolumeClaim."
#         selector:
#           type: string
#           minLength: 1
#           description: "Label selector of the objects that are protected, such as data=precious. If absent, all objects of these kinds are."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

protect := verdict.abstain if kinds.object != "Namespace"

else := verdict.deny(sprintf("it contains %s, which would be deleted with it: move or delete that first", [found[0]])) if count(found) > 0

else := verdict.deny(sprintf("Gleaner can't read its content: %s", [errors[0]])) if count(errors) > 0

else := verdict.act(next) if count(next) > 0

else := verdict.abstain

validate := settings.validate({"content": "texts", "selector": "text"})

content := settings.get("content", ["v1/PersistentVolumeClaim"])

# next are the lists without a result: one object of each kind is enough.
next := [{"id": id(kind), "list": object.union(what, selected)} |
	some kind in content
	not input.results[id(kind)]
	parts := split(kind, "/")
	last := count(parts) - 1
	what := {
		"apiVersion": concat("/", array.slice(parts, 0, last)), "kind": parts[last],
		"namespace": input.object.metadata.name, "limit": 1,
	}
]

id(kind) := replace(kind, "/", ".")

selected := {"labelSelector": selector} if selector := settings.all.selector

else := {}

found := [sprintf("%s %s", [split(kind, "/")[count(split(kind, "/")) - 1], item.metadata.name]) |
	some kind in content
	some item in input.results[id(kind)].list.items
]

errors := [sprintf("%s: %s", [kind, input.results[id(kind)].error.reason]) |
	some kind in content
	input.results[id(kind)].error
]
