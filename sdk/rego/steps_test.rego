package gleaner.sdk.steps_test

import data.gleaner.sdk.steps

bucket := {"method": "DELETE", "url": "https://s3.example.com/b?token=secret"}

target := {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "settings"}

read := {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop", "uid": "u1"}}

node := {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u2"}}

refused(reason) := {"error": {"reason": reason, "message": "oh"}}

answered(status) := {"http": {"status": status, "body": "because"}}

# after is the verdict of these steps, once this has come of them.
after(list, results) := v if v := steps.sequence(list) with input as {"attempt": 1, "round": 2, "results": results}

test_nothing_to_do_is_done if {
	after([], {}) == {"decision": "Done"}
	after([[]], {}) == {"decision": "Done"}
}

test_steps_are_taken_in_turn if {
	turn := [steps.get("a", target), steps.call("b", bucket)]
	after(turn, {}) == {"decision": "Act", "intents": [{"id": "a", "get": target}]}
	after(turn, {"a": {"object": read}}) == {"decision": "Act", "intents": [{"id": "b", "http": bucket}]}
	after(turn, {"a": {"object": read}, "b": answered(204)}) == {"decision": "Done"}
}

test_an_inner_list_takes_one_round if {
	turn := [[steps.get("a", target), steps.create("b", read)], steps.request("c", bucket)]
	after(turn, {}).intents == [{"id": "a", "get": target}, {"id": "b", "create": {"object": read}}]
	after(turn, {"a": refused("Forbidden")}).intents == [{"id": "b", "create": {"object": read}}]
	after(turn, {"a": refused("NotFound"), "b": refused("AlreadyExists")}).intents == [{"id": "c", "http": bucket}]
	after(turn, {"a": refused("Unavailable"), "b": refused("Forbidden")}).decision == "Fail"
}

test_more_than_a_verdict_holds_is_asked_for_in_several_rounds if {
	many := [[steps.get(sprintf("%d", [i]), target) | some i in numbers.range(1, 100)]]
	count(after(many, {}).intents) == 64
}

test_no_round_is_asked_for_that_there_is_not if {
	v := steps.sequence([steps.get("a", target)]) with input as {"round": 16, "results": {}}
	v == {"decision": "Wait", "after": "1s", "reason": "all rounds of this attempt were used"}
}

# deleting deletes what it has read.
deleting := steps.sequence([
	steps.get("a", target),
	[steps.delete("b", o) | some o in steps.found("a")],
])

deleted(results) := v if v := deleting with input as {"results": results}

test_what_was_read_can_be_deleted_by_its_uid if {
	deleted({}).intents[0].get
	deleted({"a": refused("NotFound")}).decision == "Done"
	deleted({"a": {"object": read}}).intents == [{"id": "b", "delete": object.union(target, {"uid": "u1"})}]
	deleted({"a": {"object": read}, "b": refused("NotFound")}).decision == "Done"
	deleted({"a": {"object": read}, "b": refused("Conflict")}).decision == "Wait"
	deleted({"a": {"object": node}}).intents[0].delete == {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u2"}
}

test_what_is_not_there_need_not_be_changed if {
	turn := [steps.patch("a", target, "merge", {"data": {}})]
	after(turn, {}).intents == [{"id": "a", "patch": object.union(target, {"type": "merge", "patch": {"data": {}}})}]
	after(turn, {"a": refused("NotFound")}).decision == "Done"
}

test_what_may_go_away_is_waited_for_longer_each_time if {
	every reason in ["Unavailable", "Conflict", "Expired", "Unheard"] {
		every attempt, wait in {1: "1s", 2: "2s", 5: "16s", 10: "300s", 1000: "300s"} {
			v := steps.sequence([steps.get("a", target)]) with input as {"attempt": attempt, "results": {"a": refused(reason)}}
			v == {"decision": "Wait", "after": wait, "reason": sprintf("get ConfigMap settings: oh: %s", [reason])}
		}
	}
}

test_what_needs_a_human_fails_and_says_what_to_do if {
	every reason, says in {"NotGranted": "spec.grants", "Forbidden": "role and a binding", "Invalid": "a valid intent"} {
		v := after([steps.call("a", bucket)], {"a": refused(reason)})
		v.decision == "Fail"
		contains(v.reason, says)
		contains(v.reason, "DELETE https://s3.example.com/b: oh")
		not contains(v.reason, "secret")
	}
}

test_a_reason_says_what_is_gone_already if {
	account := steps.sequence([steps.get("a", target)]) with input as {"serviceAccountMissing": true, "results": {"a": refused("Forbidden")}}
	contains(account.reason, "does not exist")
	namespace := steps.sequence([steps.create("a", read)]) with input as {"namespaceTerminating": true, "results": {"a": refused("Forbidden")}}
	contains(namespace.reason, "create ConfigMap settings")
	contains(namespace.reason, "nothing can be created")
}

test_a_response_is_judged_by_its_status if {
	every status in [200, 204, 404, 410] {
		after([steps.call("a", bucket)], {"a": answered(status)}).decision == "Done"
	}
	every status in [408, 425, 429, 500, 503] {
		v := after([steps.call("a", bucket)], {"a": answered(status)})
		v == {"decision": "Wait", "after": "1s", "reason": sprintf("DELETE https://s3.example.com/b returned status %d: because", [status])}
	}
	every status in [302, 400, 403, 409] {
		after([steps.call("a", bucket)], {"a": answered(status)}).decision == "Fail"
	}
	after([steps.request("a", bucket)], {"a": answered(409)}).decision == "Done"
}

# polling waits until something is gone.
polling := steps.sequence([
	steps.call("look", {"method": "GET", "url": "https://db.example.com/a"}),
	steps.until(steps.is_gone("look"), "10s", "it is being deleted"),
])

polled(results) := v if v := polling with input as {"results": results}

test_what_is_not_gone_is_polled if {
	polled({}).decision == "Act"
	polled({"look": answered(200)}) == {"decision": "Wait", "after": "10s", "reason": "it is being deleted"}
	polled({"look": answered(404)}).decision == "Done"
}

test_an_object_of_another_uid_is_a_replacement if {
	steps.is_replaced("a", "u1") with input.results as {"a": refused("NotFound")}
	steps.is_replaced("a", "u0") with input.results as {"a": {"object": read}}
	steps.is_replaced("a", "u1") == false with input.results as {"a": {"object": read}}
	steps.is_replaced("a", "u1") == false with input.results as {}
}

test_bodies_are_read if {
	steps.body("a") == "because" with input.results as {"a": answered(200)}
	steps.body("a") == "" with input.results as {}
}

test_a_condition_can_be_a_failure if {
	after([steps.fail_if(true, "no")], {}) == {"decision": "Fail", "reason": "no"}
	after([steps.fail_if(false, "no")], {}) == {"decision": "Done"}
}

test_what_comes_of_an_event_does_not_matter if {
	turn := [steps.event("a", "Warning", "BucketLeft", "it is left")]
	after(turn, {}).intents == [{"id": "a", "event": {"type": "Warning", "reason": "BucketLeft", "message": "it is left"}}]
	after(turn, {"a": refused("Unavailable")}).decision == "Done"
}

# claims deletes ConfigMaps, page by page.
claims := steps.sequence([
	steps.list("claims", {"apiVersion": "v1", "kind": "ConfigMap"}),
	[steps.delete(o.metadata.uid, o) | some o in steps.items("claims")],
	steps.more("claims"),
])

test_each_attempt_takes_a_page if {
	first := claims with input as {"results": {}}
	first.intents == [{"id": "claims", "list": {"apiVersion": "v1", "kind": "ConfigMap", "limit": 50}}]

	page := {"claims": {"list": {"items": [read, node], "continue": "next"}}}
	second := claims with input as {"results": page}
	[i.delete.uid | some i in second.intents] == ["u1", "u2"]
	not second.state

	third := claims with input as {"results": object.union(page, {"u1": {}, "u2": {}})}
	third == {"decision": "Wait", "after": "1s", "reason": "more pages of claims", "state": {"pages": {"claims": "next"}}}

	fourth := claims with input as {"results": {}, "state": third.state}
	fourth.intents[0].list.continue == "next"
	not fourth.state

	last := claims with input as {"results": {"claims": {"list": {"items": []}}}, "state": third.state}
	last == {"decision": "Done"}
}

test_a_list_that_has_become_too_old_begins_anew if {
	v := claims with input as {"results": {"claims": refused("Expired")}, "state": {"pages": {"claims": "old"}}}
	v.decision == "Wait"
	v.state == {}
}

test_once_is_once_over_all_attempts if {
	turn := [steps.once(steps.call("start", bucket)), steps.get("look", target)]
	begun := steps.sequence(turn) with input as {"results": {}}
	begun.intents[0].id == "start"
	not begun.state

	started := steps.sequence(turn) with input as {"results": {"start": answered(202)}}
	started.intents[0].id == "look"
	started.state == {"done": ["start"]}

	again := steps.sequence(turn) with input as {"results": {}, "state": started.state}
	again.intents == [{"id": "look", "get": target}]
	not again.state

	failed := steps.sequence(turn) with input as {"results": {"start": answered(503)}}
	failed.decision == "Wait"
	not failed.state
}

test_without_a_deletion_nothing_is_given_up if {
	after([steps.give_up_after("1h", {"decision": "Done"}), steps.fail_if(true, "no")], {}).decision == "Fail"
}

# giving_up gives up a minute before the deadline, or an hour after the deletion.
giving_up(when) := v if {
	v := steps.sequence([
		steps.give_up_by_deadline("1m", {"decision": "Fail", "reason": "late"}),
		steps.give_up_after("1h", {"decision": "Done", "reason": "left"}),
		steps.until(false, "24h", "waits"),
	]) with input as object.union({"time": "2026-01-02T12:00:00Z", "object": {"metadata": {"deletionTimestamp": "2026-01-02T11:30:00Z"}}}, when)
}

test_giving_up_has_its_time if {
	giving_up({"deadline": "2026-01-02T12:10:00Z"}) == {"decision": "Wait", "after": "540000ms", "reason": "waits"}
	giving_up({"deadline": "2026-01-02T12:01:00Z"}) == {"decision": "Fail", "reason": "late"}
	giving_up({}) == {"decision": "Wait", "after": "1800000ms", "reason": "waits"}
	giving_up({"time": "2026-01-02T12:30:00Z"}) == {"decision": "Done", "reason": "left"}
}
