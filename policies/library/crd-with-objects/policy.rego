# A CustomResourceDefinition with objects can't be deleted.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         exempt:
#           type: array
#           minItems: 1
#           items: {type: string, pattern: '^[a-z0-9.-]+$'}
#           description: "Names of CustomResourceDefinitions that may be deleted with their objects, such as widgets.example.com. If absent, none."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

protect := verdict.abstain if kinds.object != "apiextensions.k8s.io/CustomResourceDefinition"

else := verdict.abstain if input.object.metadata.name in settings.get("exempt", [])

else := verdict.abstain if not version

else := verdict.act([{"id": "objects", "list": {
	"apiVersion": sprintf("%s/%s", [spec.group, version]),
	"kind": spec.names.kind,
	"limit": 1,
}}]) if {
	not input.results.objects
}

else := verdict.deny(sprintf("Gleaner can't read its objects: %s", [input.results.objects.error.reason])) if input.results.objects.error

else := verdict.deny(sprintf(
	"there are objects, which would be deleted with it: kubectl get %s -A lists them",
	[input.object.metadata.name],
)) if {
	count(input.results.objects.list.items) > 0
}

else := verdict.abstain

validate := settings.validate({"exempt": "texts"})

spec := input.object.spec

# version is the first one that is served; without one, there is nothing to list.
version := [each.name | some each in spec.versions; each.served][0]
