# What keep-data.yaml asks for, in Rego. sdk/go/examples/keep-data is the same in Go.
package gleaner

import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

claim := "PersistentVolumeClaim"

# Claims stay, and the rest goes.
propagate := object.union(verdict.background, {"dependents": [{"kind": claim, "decision": "Orphan"}]}) if {
	some among in input.dependents.byKind
	among.group == ""
	among.kind == claim
}

else := verdict.abstain

collect := verdict.abstain if not is_claim

else := verdict.with_reason(verdict.orphan, "it has keep=true") if marked

else := verdict.act([{"id": "hold", "get": {
	"apiVersion": "v1",
	"kind": "ConfigMap",
	"namespace": input.object.metadata.namespace,
	"name": unless,
}}]) if {
	unless
	not answer
}

else := verdict.with_reason(verdict.wait, sprintf("ConfigMap %s is there", [unless])) if {
	unless
	answer.object
}

else := verdict.with_reason(verdict.wait, sprintf("ConfigMap %s can't be read: %s", [unless, answer.error.reason])) if {
	unless
	answer.error.reason != "NotFound" # not known to be absent
}

else := verdict.with_state(verdict.wait_for(wait), {"waited": wait}) if {
	wait
	not waited
}

else := verdict.with_propagation(verdict.delete, "Foreground") if input.dependents.count > 0

else := verdict.delete

validate := verdict.invalid(sprintf("unknown setting %s", [name])) if {
	unknown := [name | some name in sort(object.keys(settings.all)); not name in ["wait", "unless"]]
	name := unknown[0]
}

else := verdict.invalid("wait must be a number with s, m or h, such as 1h") if {
	wait
	not is_wait
}

else := verdict.valid

is_claim if {
	input.object.apiVersion == "v1"
	input.object.kind == claim
}

marked if input.object.metadata.labels.keep == "true"

marked if input.object.metadata.annotations.keep == "true"

# unless is a ConfigMap that keeps every claim while it is there.
unless := settings.all.unless

answer := input.results.hold

# wait is how long a claim is left alone at first.
wait := settings.all.wait

waited if input.state.waited == wait

is_wait if {
	is_string(wait)
	regex.match("^[0-9]+[smh]$", wait)
}
