# No objects are collected in a namespace with a label.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         label:
#           type: string
#           pattern: '^[A-Za-z0-9._/-]+$'
#           description: "Key of a label of the namespace. If absent, protect-from-gc."
#         values:
#           type: array
#           minItems: 1
#           items: {type: string, minLength: 1}
#           description: "Values of the label that protect: strings, so put true in quotes. If absent, only true."
#         decision:
#           type: string
#           enum: [Orphan, Wait]
#           description: "Orphan keeps an object for good, without its dangling owner references; Wait keeps it as long as the namespace has the label. If absent, Orphan."
#         recheck:
#           type: string
#           pattern: '^([0-9]{1,9}([.][0-9]{1,9})?(h|m|s|ms))+$'
#           description: "Interval of evaluations of an object that waits, such as 90s or 1h30m, at most 720h. If absent, 5m."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

collect := verdict.abstain if not namespace

else := verdict.act([{"id": "namespace", "get": {"apiVersion": "v1", "kind": "Namespace", "name": namespace}}]) if not answer

else := verdict.with_reason(verdict.wait, sprintf("namespace %s cannot be read: %s", [namespace, answer.error.reason])) if not answer.object

else := verdict.abstain if going

else := verdict.with_reason(kept, sprintf("namespace %s has the label %s=%s", [namespace, label, found])) if protected

else := verdict.abstain

validate := settings.validate({
	"label": "text",
	"values": "texts",
	"decision": ["Orphan", "Wait"],
	"recheck": "duration",
})

namespace := name if {
	name := input.object.metadata.namespace
	name != ""
}

# answer is the result of reading the namespace.
answer := input.results.namespace

label := settings.get("label", "protect-from-gc")

found := answer.object.metadata.labels[label]

protected if found in settings.get("values", ["true"])

# going: the namespace is being deleted, with all objects in it.
going if answer.object.metadata.deletionTimestamp

kept := verdict.orphan if settings.get("decision", "Orphan") == "Orphan"

else := verdict.wait_for(settings.get("recheck", "5m"))
