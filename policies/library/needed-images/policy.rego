# Images that workloads have in the template of their Pods stay on the nodes.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         kinds:
#           type: array
#           minItems: 1
#           items: {type: string, pattern: '^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*$'}
#           description: "Kinds of workloads that keep their images, as Kind or group/Kind. If absent, CronJobs, Jobs, Deployments, StatefulSets, DaemonSets, ReplicaSets and ReplicationControllers."
#         namespaces:
#           type: array
#           minItems: 1
#           items: {type: string, pattern: '^[a-z0-9-]+$'}
#           description: "Names of the namespaces of these workloads. If absent, all namespaces."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

retain := verdict.keep(sprintf("%s needs it", [needed[0]])) if count(needed) > 0

else := verdict.abstain

validate := settings.validate({"kinds": "kinds", "namespaces": "texts"})

# needed are the workloads that need the image.
needed := sort([sprintf("%s %s/%s", [workload.kind, workload.namespace, workload.name]) |
	some workload in object.get(input, ["image", "workloads"], [])
	kinds.of(workload.apiVersion, workload.kind) in settings.get("kinds", default_kinds)
	in_namespace(workload.namespace)
])

default_kinds := ["batch/CronJob", "batch/Job", "apps/Deployment", "apps/StatefulSet", "apps/DaemonSet", "apps/ReplicaSet", "ReplicationController"]

in_namespace(_) if not settings.all.namespaces

in_namespace(name) if name in settings.all.namespaces
