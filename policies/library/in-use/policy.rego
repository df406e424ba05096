# An object that others use can't be deleted.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         kinds:
#           type: array
#           minItems: 1
#           items: {type: string, enum: [PersistentVolumeClaim, ConfigMap, Secret, storage.k8s.io/StorageClass]}
#           description: "Kinds that are protected. If absent, all of these."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

protect := verdict.abstain if count(readers) == 0

else := verdict.deny(sprintf("%s uses it: delete that first, or have it use another one", [users[0]])) if count(users) > 0

else := verdict.deny(sprintf("Gleaner can't read what may use it: %s", [errors[0]])) if count(errors) > 0

else := verdict.act(next) if count(next) > 0

else := verdict.abstain

validate := settings.validate({"kinds": "kinds"})

pods := {"pods": {"apiVersion": "v1", "kind": "Pod"}}

workloads := object.union(pods, {
	"deployments": {"apiVersion": "apps/v1", "kind": "Deployment"},
	"statefulsets": {"apiVersion": "apps/v1", "kind": "StatefulSet"},
	"daemonsets": {"apiVersion": "apps/v1", "kind": "DaemonSet"},
	"jobs": {"apiVersion": "batch/v1", "kind": "Job"},
	"cronjobs": {"apiVersion": "batch/v1", "kind": "CronJob"},
})

# possible are the kinds that may use an object of a kind, by the id of their list.
possible := {
	"PersistentVolumeClaim": pods,
	"ConfigMap": workloads,
	"Secret": object.union(workloads, {
		"ingresses": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"},
		"serviceaccounts": {"apiVersion": "v1", "kind": "ServiceAccount"},
	}),
	"storage.k8s.io/StorageClass": {
		"volumes": {"apiVersion": "v1", "kind": "PersistentVolume"},
		"claims": {"apiVersion": "v1", "kind": "PersistentVolumeClaim"},
	},
}

# readers are those that may use the object; none if the settings do not name its kind.
readers := possible[kinds.object] if kinds.object in settings.get("kinds", object.keys(possible))

else := {}

name := input.object.metadata.name

# next are the lists that are not complete: each continues where its last page ended.
next := [{"id": id, "list": object.union(object.union(what, {"limit": 100}), object.union(place, continued(id)))} |
	some id, what in readers
	not complete(id)
]

place := {"namespace": input.object.metadata.namespace} if input.object.metadata.namespace != ""

else := {}

complete(id) if token(id) == ""

continued(id) := {"continue": token(id)} if token(id) != ""

else := {}

# token is where a list ended; undefined without a result.
token(id) := object.get(input.results[id].list, "continue", "")

errors := sort([sprintf("%s: %s", [what.kind, input.results[id].error.reason]) |
	some id, what in readers
	input.results[id].error
])

users := sort({sprintf("%s %s", [what.kind, item.metadata.name]) |
	some id, what in readers
	some item in input.results[id].list.items
	uses(what.kind, item)
})

# A Pod that has ended uses nothing any more.
uses(kind, item) if {
	not ended(kind, item)
	refers(kinds.object, item)
}

ended("Pod", item) if item.status.phase in {"Succeeded", "Failed"}

refers("PersistentVolumeClaim", item) if {
	some volume in item.spec.volumes
	volume.persistentVolumeClaim.claimName == name
}

refers("storage.k8s.io/StorageClass", item) if item.spec.storageClassName == name

# Volumes and environment variables of containers, wherever the template is.
refers("ConfigMap", item) if {
	walk(item, [path, value])
	path[count(path) - 1] in {"configMap", "configMapRef", "configMapKeyRef"}
	value.name == name
}

refers("Secret", item) if {
	walk(item, [path, value])
	path[count(path) - 1] in {"secret", "secretRef", "secretKeyRef", "nodePublishSecretRef"}
	value.name == name
}

# Volumes of Pods, and certificates of Ingresses.
refers("Secret", item) if {
	walk(item, [path, name])
	path[count(path) - 1] == "secretName"
}

# ServiceAccounts, and Pods that pull images.
refers("Secret", item) if {
	walk(item, [path, value])
	path[count(path) - 2] in {"imagePullSecrets", "secrets"}
	value.name == name
}
