package gleaner

claim(uid, approver, until) := {
	"apiVersion": "v1", "kind": "PersistentVolumeClaim",
	"metadata": {"name": "data", "namespace": "shop", "uid": "u1", "annotations": {
		"approval.gleaner.dev/uid": uid,
		"approval.gleaner.dev/approver": approver,
		"approval.gleaner.dev/until": until,
	}},
}

decide(object, user) := verdict_of if {
	verdict_of := protect with input as {"object": object, "userInfo": {"username": user, "groups": []}, "time": "2026-01-02T12:00:00Z"}
}

denies(verdict, reason) if {
	verdict.decision == "Deny"
	contains(verdict.reason, reason)
}

test_another_user_has_to_approve if {
	bare := {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "shop", "uid": "u1"}}
	denies(decide(bare, "bob"), "its deletion is not approved")
	denies(decide(bare, "bob"), "kubectl annotate --overwrite persistentvolumeclaim data -n shop approval.gleaner.dev/uid=u1")
}

test_the_command_for_an_object_without_a_namespace if {
	denies(decide({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": "u1"}}, "bob"), "namespace shop approval")
}

test_an_approved_object_goes if decide(claim("u1", "alice", "2026-01-02T13:00:00Z"), "bob").decision == "Abstain"

test_the_approver_can_not_delete if denies(decide(claim("u1", "alice", "2026-01-02T13:00:00Z"), "alice"), "yourself")

test_an_approval_of_an_earlier_object_is_none if denies(decide(claim("u0", "alice", "2026-01-02T13:00:00Z"), "bob"), "another UID")

test_an_approval_expires if denies(decide(claim("u1", "alice", "2026-01-02T12:00:00Z"), "bob"), "expired")

test_an_approval_is_for_a_limited_time if denies(decide(claim("u1", "alice", "2026-01-04T12:00:00Z"), "bob"), "longer than 24h")

test_a_time_that_can_not_be_read_is_none if denies(decide(claim("u1", "alice", "tomorrow"), "bob"), "expired")

test_settings_are_checked if {
	validate.decision == "Valid" with input as {"policy": {"settings": {"atMost": "1h"}}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"for": "1h"}}}
}
