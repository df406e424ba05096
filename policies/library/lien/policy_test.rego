package gleaner

decide(annotations) := verdict_of if {
	verdict_of := protect with input as {
		"object": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "annotations": annotations}},
		"time": "2026-01-02T12:00:00Z",
	}
}

test_an_object_without_a_lien_goes if decide({}).decision == "Abstain"

test_an_object_with_a_lien_stays if {
	verdict_of := decide({"lien.gleaner.dev/owner": "alice", "lien.gleaner.dev/reason": "audit", "lien.gleaner.dev/until": "2026-02-01T00:00:00Z"})
	verdict_of.decision == "Deny"
	startswith(verdict_of.reason, "alice has a lien on it until 2026-02-01T00:00:00Z (audit): ask them")
}

test_a_lien_needs_no_reason_and_no_end if {
	startswith(decide({"lien.gleaner.dev/owner": "alice"}).reason, "alice has a lien on it: ask them")
}

test_a_lien_ends if decide({"lien.gleaner.dev/owner": "alice", "lien.gleaner.dev/until": "2026-01-02T12:00:00Z"}).decision == "Abstain"

test_an_end_that_can_not_be_read_never_comes if decide({"lien.gleaner.dev/owner": "alice", "lien.gleaner.dev/until": "soon"}).decision == "Deny"

test_a_group_in_the_settings_overrides_a_lien if {
	verdict_of := protect with input as {
		"object": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"annotations": {"lien.gleaner.dev/owner": "alice"}}},
		"userInfo": {"username": "bob", "groups": ["oncall"]}, "policy": {"settings": {"overriddenBy": ["oncall"]}},
	}
	verdict_of.decision == "Abstain"
}

test_settings_are_checked if {
	validate.decision == "Valid" with input as {"policy": {"settings": {"overriddenBy": ["oncall"]}}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"owner": "alice"}}}
}
