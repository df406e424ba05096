# An object that contains data is kept when its last owner is deleted.

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
#           description: "Kinds that contain data, as Kind or group/Kind. If absent, PersistentVolumeClaim and snapshot.storage.k8s.io/VolumeSnapshot."
#         unless:
#           type: object
#           additionalProperties: {type: string}
#           description: "Labels, such as {data: scratch}: an object with one of them is left to other policies. If absent, labels do not matter."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.meta
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

collect := verdict.abstain if not kinds.object in data_kinds

else := verdict.abstain if disposable

else := verdict.with_reason(verdict.orphan, sprintf("a %s contains data, which is kept when its owner is deleted", [kinds.object]))

validate := settings.validate({"kinds": "kinds", "unless": "labels"})

data_kinds := settings.get("kinds", ["PersistentVolumeClaim", "snapshot.storage.k8s.io/VolumeSnapshot"])

# disposable: a label says that the data need not be kept.
disposable if {
	some key, value in settings.get("unless", {})
	meta.has_label(key, value)
}
