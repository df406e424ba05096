# Retention never removes the newest of similar objects that has succeeded.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         label:
#           type: string
#           pattern: '^[A-Za-z0-9._/-]+$'
#           description: "Key of a label, such as velero.io/schedule-name: objects with the same value are similar. If absent, objects with the same controller are."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.meta
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

retain := verdict.abstain if not succeeded(input.object)

else := verdict.abstain if count(newer) > 0

else := verdict.keep(sprintf("Gleaner can't read similar objects: %s", [error])) if error != ""

else := verdict.act([{"id": "others", "list": page}]) if not complete

else := verdict.keep("of similar objects, it is the newest that has succeeded")

validate := settings.validate({"label": "text"})

# conditions and phases are what says that an object has succeeded, by kind.
conditions := {
	"batch/Job": "Complete",
	"tekton.dev/PipelineRun": "Succeeded",
	"tekton.dev/TaskRun": "Succeeded",
}

phases := {
	"Pod": "Succeeded",
	"argoproj.io/Workflow": "Succeeded",
	"velero.io/Backup": "Completed",
	"velero.io/Restore": "Completed",
}

succeeded(item) if {
	some condition in item.status.conditions
	condition.type == conditions[kinds.object]
	condition.status == "True"
}

succeeded(item) if item.status.phase == phases[kinds.object]

result := object.get(input.results, "others", {})

error := object.get(result, ["error", "reason"], "")

token := object.get(result, ["list", "continue"], "")

# complete: the last page was read.
complete if {
	result.list
	token == ""
}

page := object.union_n([
	{"apiVersion": input.object.apiVersion, "kind": input.object.kind, "namespace": input.object.metadata.namespace, "limit": 100},
	{"labelSelector": sprintf("%s=%s", [label, value]) | value := meta.labels[label]},
	{"continue": token | token != ""},
])

label := settings.get("label", "")

# newer are similar objects that have succeeded, and were created later.
newer := [item.metadata.name |
	some item in result.list.items
	similar(item)
	succeeded(item)
	later(item.metadata, input.object.metadata)
]

later(a, b) if a.creationTimestamp > b.creationTimestamp

later(a, b) if {
	a.creationTimestamp == b.creationTimestamp
	a.name > b.name
}

# Objects are similar if they have the same value of the label of the settings, or, without that, the same controller.
similar(item) if {
	label != ""
	object.get(item.metadata, ["labels", label], "") == object.get(meta.labels, label, "")
}

similar(item) if {
	label == ""
	controller(item) == controller(input.object)
}

controller(item) := concat("", [owner.uid |
	some owner in object.get(item.metadata, "ownerReferences", [])
	owner.controller
])
