# Nothing is collected in a namespace that has a label.
package gleaner

import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

collect := verdict.abstain if not namespace

else := verdict.act([{"id": "namespace", "get": {"apiVersion": "v1", "kind": "Namespace", "name": namespace}}]) if not answer

else := verdict.because(verdict.wait, sprintf("namespace %s can't be read: %s", [namespace, answer.error.reason])) if not answer.object

else := verdict.abstain if going

else := verdict.because(kept, sprintf("namespace %s has the label %s=%s", [namespace, label, found])) if protected

else := verdict.abstain

validate := settings.checked({
	"label": "text",
	"values": "texts",
	"decision": ["Orphan", "Wait"],
	"recheck": "duration",
})

namespace := name if {
	name := input.object.metadata.namespace
	name != ""
}

# answer is what came of reading the namespace, once that has been asked for.
answer := input.results.namespace

label := settings.get("label", "protect-from-gc")

found := answer.object.metadata.labels[label]

protected if found in settings.get("values", ["true"])

# going: a namespace that is being deleted takes everything with it.
going if answer.object.metadata.deletionTimestamp

kept := verdict.orphan if settings.get("decision", "Orphan") == "Orphan"

else := verdict.wait_for(settings.get("recheck", "5m"))
