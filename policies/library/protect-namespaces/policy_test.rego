package gleaner

in_namespace(name) := {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": name}}

asked(results, given) := answered if {
	answered := collect with input as {"object": in_namespace("shop"), "results": results, "policy": {"settings": given}}
}

labelled(labels) := {"namespace": {"object": {"metadata": {"name": "shop", "labels": labels}}}}

test_the_namespace_is_asked_for if {
	intent := {"id": "namespace", "get": {"apiVersion": "v1", "kind": "Namespace", "name": "shop"}}
	every results in [null, {}] {
		asked(results, {}) == {"decision": "Act", "intents": [intent]}
	}
}

test_what_is_in_no_namespace_is_none_of_its_business if {
	collect.decision == "Abstain" with input.object as {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
	collect.decision == "Abstain" with input.object as in_namespace("")
}

test_a_label_protects if {
	asked(labelled({"protect-from-gc": "true"}), {}).decision == "Orphan"
	asked(labelled({"protect-from-gc": "false"}), {}).decision == "Abstain"
	asked(labelled({}), {}).decision == "Abstain"
	asked({"namespace": {"object": {"metadata": {"name": "shop"}}}}, {}).decision == "Abstain"
}

test_the_label_can_be_set if {
	given := {"label": "env", "values": ["prod", "staging"]}
	asked(labelled({"env": "staging"}), given).decision == "Orphan"
	asked(labelled({"env": "dev"}), given).decision == "Abstain"
}

test_an_object_can_be_kept_for_as_long_as_the_label_is_there if {
	given := {"decision": "Wait", "recheck": "1h"}
	answered := asked(labelled({"protect-from-gc": "true"}), given)
	answered.decision == "Wait"
	answered.after == "1h"
}

test_a_namespace_that_can_not_be_read_may_have_the_label if {
	every reason in ["NotFound", "Forbidden", "NotGranted", "Unavailable"] {
		asked({"namespace": {"error": {"reason": reason, "message": "no"}}}, {}).decision == "Wait"
	}
}

test_a_namespace_that_is_being_deleted_protects_nothing if {
	gone := {"namespace": {"object": {"metadata": {
		"name": "shop",
		"labels": {"protect-from-gc": "true"},
		"deletionTimestamp": "2026-01-02T12:00:00Z",
	}}}}
	asked(gone, {}).decision == "Abstain"
}

test_settings_are_checked if {
	given := {"label": "env", "values": ["prod"], "decision": "Wait", "recheck": "5m"}
	validate.decision == "Valid" with input as {"policy": {"settings": given}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"decision": "Keep"}}}
}
