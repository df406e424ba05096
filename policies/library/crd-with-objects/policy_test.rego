package gleaner

definition(served) := {
	"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
	"metadata": {"name": "widgets.example.com"},
	"spec": {
		"group": "example.com", "names": {"kind": "Widget"},
		"versions": [{"name": "v1", "served": false}, {"name": "v2", "served": served}],
	},
}

decide(object, results) := verdict_of if {
	verdict_of := protect with input as {"object": object, "results": results}
}

test_the_objects_are_listed if {
	decide(definition(true), {}).intents == [{"id": "objects", "list": {"apiVersion": "example.com/v2", "kind": "Widget", "limit": 1}}]
}

test_a_definition_with_objects_stays if {
	verdict_of := decide(definition(true), {"objects": {"list": {"items": [{"metadata": {"name": "a"}}]}}})
	verdict_of.decision == "Deny"
	contains(verdict_of.reason, "kubectl get widgets.example.com -A")
}

test_a_definition_without_objects_goes if decide(definition(true), {"objects": {"list": {"items": []}}}).decision == "Abstain"

test_a_definition_that_serves_nothing_goes if decide(definition(false), {}).decision == "Abstain"

test_objects_that_cannot_be_read_keep_it if {
	verdict_of := decide(definition(true), {"objects": {"error": {"reason": "Forbidden", "message": "no"}}})
	verdict_of.decision == "Deny"
	contains(verdict_of.reason, "Forbidden")
}

test_an_exempt_definition_goes if {
	verdict_of := protect with input as {"object": definition(true), "policy": {"settings": {"exempt": ["widgets.example.com"]}}}
	verdict_of.decision == "Abstain"
}

test_another_kind_is_left_to_others if decide({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}, {}).decision == "Abstain"

test_settings_are_checked if {
	validate.decision == "Valid" with input as {"policy": {"settings": {"exempt": ["a"]}}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"exempt": "a"}}}
}
