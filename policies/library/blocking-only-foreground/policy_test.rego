package gleaner

owner(kind, standing, blocking) := {
	"reference": {"apiVersion": "apps/v1", "kind": kind, "name": "a", "blockOwnerDeletion": blocking},
	"status": standing,
}

asked(given_owners, given) := answered.decision if {
	answered := collect with input as {"owners": given_owners, "policy": {"settings": given}}
}

test_what_blocks_goes_first if {
	asked([owner("Deployment", "Waiting", true)], {}) == "Abstain"
}

test_what_does_not_block_waits if {
	asked([owner("Deployment", "Waiting", false)], {}) == "Wait"
	asked([{"reference": {"apiVersion": "v1", "kind": "Pod", "name": "a"}, "status": "Waiting"}], {}) == "Wait"
}

test_once_the_owner_is_gone_it_goes if {
	asked([owner("Deployment", "Absent", false)], {}) == "Abstain"
}

test_what_blocks_one_owner_goes_first if {
	asked([owner("Deployment", "Waiting", false), owner("StatefulSet", "Waiting", true)], {}) == "Abstain"
	asked([owner("Deployment", "Waiting", false), owner("StatefulSet", "Absent", true)], {}) == "Wait"
}

test_the_owners_can_be_chosen if {
	given := {"owners": ["apps/StatefulSet"]}
	asked([owner("StatefulSet", "Waiting", false)], given) == "Wait"
	asked([owner("Deployment", "Waiting", false)], given) == "Abstain"
}

test_how_often_it_is_asked_can_be_set if {
	collect.after == "10s" with input as {"owners": [owner("Deployment", "Waiting", false)], "policy": {"settings": {"recheck": "10s"}}}
}

test_settings_are_checked if {
	validate.decision == "Valid" with input as {"policy": {"settings": {"owners": ["apps/StatefulSet"], "recheck": "10s"}}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"owners": ["statefulsets"]}}}
}
