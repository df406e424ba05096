package gleaner

owner(name, standing) := {
	"reference": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": sprintf("%s-uid", [name])},
	"status": standing,
}

web := owner("web", "Absent")

request(given_owners, results) := {
	"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}},
	"owners": given_owners,
	"results": results,
	"ownersAbsentSince": "2026-01-02T11:00:00Z",
	"time": "2026-01-02T12:00:00Z",
}

there(uid) := {"object": {"metadata": {"name": "web", "uid": uid}}}

failed(reason) := {"error": {"reason": reason, "message": "no"}}

test_the_owner_is_read_by_name if {
	want := {"decision": "Act", "intents": [{
		"id": "namespace-0",
		"get": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
	}]}
	every results in [null, {}] {
		collect == want with input as request([web], results)
	}
}

test_an_owner_in_no_namespace_is_read_next if {
	collect.intents == [{
		"id": "cluster-0",
		"get": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
	}] with input as request([web], {"namespace-0": failed("Invalid")})
}

test_the_owner_of_what_is_in_no_namespace_is_in_none if {
	intents := collect.intents with input as object.remove(request([web], null), ["object"]) with input.object as {"metadata": {"name": "a"}}
	[intent.id | some intent in intents] == ["cluster-0"]
}

test_all_owners_that_are_gone_are_read if {
	intents := collect.intents with input as request([web, owner("api", "Waiting"), owner("db", "Absent")], {})
	[intent.get.name | some intent in intents] == ["web", "db"]
}

test_an_owner_with_another_uid_keeps_the_object if {
	verdict_of := collect with input as request([web], {"namespace-0": there("new-uid")})
	verdict_of.decision == "Wait"
	startswith(verdict_of.reason, "Deployment web exists with another UID")
}

test_so_does_one_of_two if {
	collect.decision == "Wait" with input as request(
		[owner("db", "Absent"), web],
		{"namespace-0": failed("NotFound"), "namespace-1": there("new-uid")},
	)
}

test_so_does_one_in_no_namespace if {
	collect.decision == "Wait" with input as request([web], {"namespace-0": failed("Invalid"), "cluster-0": there("new-uid")})
}

test_an_owner_that_is_nowhere_lets_it_go if {
	collect.decision == "Abstain" with input as request([web], {"namespace-0": failed("NotFound")})
	collect.decision == "Abstain" with input as request([web], {"namespace-0": failed("Invalid"), "cluster-0": failed("NotFound")})
}

test_what_could_not_be_read_keeps_it if {
	every reason in ["Forbidden", "NotGranted", "Unavailable", "Expired"] {
		collect.decision == "Wait" with input as request([web], {"namespace-0": failed(reason)})
	}
	collect.decision == "Wait" with input as request([web], {"namespace-0": failed("Invalid"), "cluster-0": failed("Invalid")})
	collect.decision == "Wait" with input as request([web], {"namespace-0": there("web-uid")})
}

test_it_ends_after_the_time_that_is_set if {
	quarantined := request([web], {"namespace-0": there("new-uid")})
	collect.decision == "Abstain" with input as object.union(quarantined, {"policy": {"settings": {"for": "1h"}}})
	collect.decision == "Wait" with input as object.union(quarantined, {"policy": {"settings": {"for": "1h1s"}}})
}

test_an_owner_that_is_waiting_is_not_looked_for if {
	collect.decision == "Abstain" with input as request([owner("web", "Waiting")], {})
}

test_settings_are_checked if {
	validate.decision == "Valid" with input as {"policy": {"settings": {"for": "72h", "recheck": "10m"}}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"for": "3d"}}}
}
