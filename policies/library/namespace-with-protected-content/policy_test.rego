package gleaner

namespace := {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}

decide(results) := verdict_of if {
	verdict_of := protect with input as {"object": namespace, "results": results}
}

test_claims_are_read if {
	decide({}).intents == [{
		"id": "v1.PersistentVolumeClaim",
		"list": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "shop", "limit": 1},
	}]
}

test_the_settings_choose_what_is_read if {
	verdict_of := protect with input as {"object": namespace, "policy": {"settings": {"content": ["apps/v1/StatefulSet"], "selector": "a=b"}}}
	verdict_of.intents == [{
		"id": "apps.v1.StatefulSet",
		"list": {"apiVersion": "apps/v1", "kind": "StatefulSet", "namespace": "shop", "limit": 1, "labelSelector": "a=b"},
	}]
}

test_a_namespace_with_a_claim_stays if {
	verdict_of := decide({"v1.PersistentVolumeClaim": {"list": {"items": [{"metadata": {"name": "data"}}]}}})
	verdict_of.decision == "Deny"
	contains(verdict_of.reason, "it contains PersistentVolumeClaim data")
}

test_a_namespace_without_one_goes if decide({"v1.PersistentVolumeClaim": {"list": {"items": []}}}).decision == "Abstain"

test_content_that_cannot_be_read_keeps_it if {
	verdict_of := decide({"v1.PersistentVolumeClaim": {"error": {"reason": "Forbidden", "message": "no"}}})
	verdict_of.decision == "Deny"
	contains(verdict_of.reason, "Forbidden")
}

test_another_kind_is_left_to_others if {
	verdict_of := protect with input as {"object": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}}
	verdict_of.decision == "Abstain"
}

test_settings_are_checked if {
	validate.decision == "Valid" with input as {"policy": {"settings": {"content": ["v1/Secret"], "selector": "a"}}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"label": "a"}}}
}
