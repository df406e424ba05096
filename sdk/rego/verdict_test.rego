package gleaner.sdk.verdict_test

import data.gleaner.sdk.verdict

test_a_reason_is_added_to_any_verdict if {
	verdict.with_reason(verdict.delete, "nobody owns it") == {"decision": "Delete", "reason": "nobody owns it"}
	verdict.with_reason(verdict.wait_for("10m"), "not yet") == {"decision": "Wait", "after": "10m", "reason": "not yet"}
}

test_an_object_is_kept_with_a_reason_and_for_a_time if {
	verdict.keep("the newest backup") == {"decision": "Keep", "reason": "the newest backup"}
	verdict.keep_for("24h", "it is needed") == {"decision": "Keep", "after": "24h", "reason": "it is needed"}
}

test_what_is_added_last_stays if {
	verdict.with_reason(verdict.fail("first"), "last").reason == "last"
}

test_a_delete_can_be_delayed_and_passed_on if {
	verdict.with_grace_period(verdict.with_propagation(verdict.delete_after("1h"), "Foreground"), 5) == {
		"decision": "Delete",
		"delay": "1h",
		"propagation": "Foreground",
		"gracePeriodSeconds": 5,
	}
}

test_dependents_are_deleted_in_order if {
	verdict.with_order(verdict.with_grace_period(verdict.foreground, 600), [[{"kind": "Pod"}], [{"kind": "Secret"}]]) == {
		"decision": "Foreground",
		"gracePeriodSeconds": 600,
		"order": [[{"kind": "Pod"}], [{"kind": "Secret"}]],
	}
}

test_dependents_inherit_the_grace_period_of_the_request if {
	verdict.with_inherited_grace_period(verdict.foreground) == {"decision": "Foreground", "inheritGracePeriod": true}
}

test_a_finalizer_acts_and_remembers if {
	verdict.with_state(verdict.act([{"id": "a"}]), {"step": 2}) == {
		"decision": "Act",
		"intents": [{"id": "a"}],
		"state": {"step": 2},
	}
}

test_each_decision_has_its_name if {
	decisions := {v.decision |
		some v in [
			verdict.abstain, verdict.wait, verdict.delete, verdict.orphan, verdict.background, verdict.foreground,
			verdict.allow, verdict.deny(""), verdict.remove, verdict.keep(""), verdict.done, verdict.fail(""), verdict.act([]), verdict.valid, verdict.invalid(""),
		]
	}
	decisions == {
		"Abstain", "Wait", "Delete", "Orphan", "Background", "Foreground", "Remove", "Keep",
		"Allow", "Deny", "Done", "Fail", "Act", "Valid", "Invalid",
	}
}
