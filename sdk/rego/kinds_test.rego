package gleaner.sdk.kinds_test

import data.gleaner.sdk.kinds

test_kinds_are_named_by_group_and_kind if {
	kinds.named("apps", "StatefulSet") == "apps/StatefulSet"
	kinds.named("", "Pod") == "Pod"
	kinds.of("apps/v1", "StatefulSet") == "apps/StatefulSet"
	kinds.of("v1", "Pod") == "Pod"
}

test_the_kind_of_the_object_has_a_name if {
	kinds.object == "Pod" with input as {"object": {"apiVersion": "v1", "kind": "Pod"}}
	not kinds.object with input as {"object": {}}
}

test_the_kinds_of_dependents_have_names if {
	kinds.dependents == ["Pod", "apps/ReplicaSet"] with input as {"dependents": {"count": 3, "byKind": [
		{"group": "", "kind": "Pod", "count": 1},
		{"group": "apps", "kind": "ReplicaSet", "count": 2},
	]}}
	kinds.dependents == [] with input as {"dependents": {"count": 0, "byKind": null}}
	kinds.dependents == [] with input as {}
}
