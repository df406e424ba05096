package gleaner

about(version, kind, spec) := {
	"object": {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec},
	"dependents": {"count": 1, "byKind": [{"group": "networking.k8s.io", "kind": "Ingress", "count": 1}]},
}

asked(request, given) := answered.decision if {
	answered := propagate with input as object.union(request, {"policy": {"settings": given}})
}

test_fronts_go_last if {
	asked(about("networking.k8s.io/v1", "Ingress", {}), {}) == "Foreground"
	asked(about("gateway.networking.k8s.io/v1", "Gateway", {}), {}) == "Foreground"
	asked(about("v1", "Service", {"type": "LoadBalancer"}), {}) == "Foreground"
}

test_others_do_not if {
	asked(about("v1", "Service", {"type": "ClusterIP"}), {}) == "Abstain"
	asked(about("v1", "Service", {}), {}) == "Abstain"
	asked(about("apps/v1", "Deployment", {"type": "LoadBalancer"}), {}) == "Abstain"
}

test_load_balancers_can_be_left_out if {
	asked(about("v1", "Service", {"type": "LoadBalancer"}), {"loadBalancers": false}) == "Abstain"
}

test_kinds_can_be_set if {
	given := {"kinds": ["example.com/Front"]}
	asked(about("example.com/v1", "Front", {}), given) == "Foreground"
	asked(about("networking.k8s.io/v1", "Ingress", {}), given) == "Abstain"
}

test_dependents_of_a_kind_are_waited_for if {
	app := about("example.com/v1", "App", {})
	asked(app, {"dependents": ["networking.k8s.io/Ingress"]}) == "Foreground"
	asked(app, {"dependents": ["Service"]}) == "Abstain"
	asked(object.union(app, {"dependents": {"count": 0, "byKind": null}}), {"dependents": ["Service"]}) == "Abstain"
}

test_a_service_that_may_not_be_read_may_be_one if {
	unread := {"object": {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}, "withheld": ["object"]}
	asked(unread, {}) == "Foreground"
	asked(unread, {"loadBalancers": false}) == "Abstain"
}

test_settings_are_checked if {
	given := {"kinds": ["example.com/Front"], "dependents": ["Service"], "loadBalancers": true}
	validate.decision == "Valid" with input as {"policy": {"settings": given}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"loadBalancers": "yes"}}}
}
