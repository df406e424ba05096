package gleaner

about(annotations, given) := {
	"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": annotations}},
	"policy": {"settings": given},
}

test_the_annotation_keeps_the_object_and_its_dependents if {
	marked_object := about({"orphan-on-owner-deletion": "true"}, {})
	collect.decision == "Orphan" with input as marked_object
	propagate.decision == "Orphan" with input as marked_object
}

test_without_it_others_decide if {
	every annotations in [{}, {"orphan-on-owner-deletion": "false"}, {"other": "true"}] {
		collect.decision == "Abstain" with input as about(annotations, {})
		propagate.decision == "Abstain" with input as about(annotations, {})
	}
}

test_the_annotation_can_be_set if {
	helm := {"annotation": "helm.sh/resource-policy", "value": "keep"}
	collect.decision == "Orphan" with input as about({"helm.sh/resource-policy": "keep"}, helm)
	collect.decision == "Abstain" with input as about({"orphan-on-owner-deletion": "true"}, helm)
}

test_an_annotation_that_may_not_be_read_may_be_there if {
	every name in ["object", "metadata.annotations"] {
		unreadable := object.union(about({}, {}), {"withheld": [name]})
		collect.decision == "Wait" with input as unreadable
		propagate.decision == "Wait" with input as unreadable
	}
}

test_settings_are_checked if {
	validate.decision == "Valid" with input as {"policy": {"settings": {"annotation": "a", "value": "b"}}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"value": true}}}
}
