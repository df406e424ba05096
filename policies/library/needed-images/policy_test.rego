package gleaner

nightly := {"apiVersion": "batch/v1", "kind": "CronJob", "namespace": "shop", "name": "nightly"}

web := {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "web", "name": "web"}

decide(workloads, all) := verdict_of if {
	verdict_of := retain with input as {"image": {"workloads": workloads}, "policy": {"settings": all}}
}

test_an_image_that_a_cronjob_has_stays if {
	decide([nightly], {}) == {"decision": "Keep", "reason": "CronJob shop/nightly needs it"}
}

test_an_image_that_nothing_has_is_left_to_others if decide([], {}) == {"decision": "Abstain"}

test_an_object_that_is_no_image_is_left_to_others if {
	{"decision": "Abstain"} == retain with input as {"object": {"kind": "Node"}}
}

test_kinds_can_be_chosen if {
	decide([web], {"kinds": ["batch/CronJob"]}) == {"decision": "Abstain"}
	decide([web, nightly], {"kinds": ["batch/CronJob"]}).reason == "CronJob shop/nightly needs it"
}

test_namespaces_can_be_chosen if {
	decide([web], {"namespaces": ["shop"]}) == {"decision": "Abstain"}
	decide([nightly], {"namespaces": ["shop"]}).decision == "Keep"
}

test_settings_are_validated if {
	validate.decision == "Valid" with input as {"policy": {"settings": {"namespaces": ["shop"]}}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"kinds": "CronJob"}}}
}
