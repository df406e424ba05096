# An object that holds data stays when its last owner goes.
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.meta
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

collect := verdict.abstain if not kinds.object in data_kinds

else := verdict.abstain if disposable

else := verdict.because(verdict.orphan, sprintf("a %s holds data, which stays when its owner goes", [kinds.object]))

validate := settings.checked({"kinds": "kinds", "unless": "labels"})

data_kinds := settings.get("kinds", ["PersistentVolumeClaim", "snapshot.storage.k8s.io/VolumeSnapshot"])

# disposable: one of its labels says that the data need not be kept.
disposable if {
	some key, value in settings.get("unless", {})
	meta.labelled(key, value)
}
