package gleaner.sdk.meta_test

import data.gleaner.sdk.meta

labelled := {"object": {"metadata": {"labels": {"app": "web", "tier": "front"}}}}

bare := {"object": {"metadata": {"name": "a"}}}

test_labels_are_read if {
	meta.has_label("app", "web") with input as labelled
	not meta.has_label("app", "db") with input as labelled
	not meta.has_label("app", "web") with input as bare
}

test_annotations_are_read if {
	annotated := {"object": {"metadata": {"annotations": {"keep": "true"}}}}
	meta.has_annotation("keep", "true") with input as annotated
	not meta.has_annotation("keep", "true") with input as labelled
}

test_finalizers_are_read if {
	meta.has_finalizer("a/b") with input as {"object": {"metadata": {"finalizers": ["a/b"]}}}
	not meta.has_finalizer("a/b") with input as bare
}

test_an_empty_selector_matches_everything if {
	meta.matches_selector({}) with input as labelled
	meta.matches_selector({}) with input as bare
}

test_every_condition_of_a_selector_must_hold if {
	meta.matches_selector({
		"matchLabels": {"app": "web"},
		"matchExpressions": [{"key": "tier", "operator": "In", "values": ["front", "back"]}],
	}) with input as labelled

	not meta.matches_selector({
		"matchLabels": {"app": "db"},
		"matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}],
	}) with input as labelled
}

test_a_label_that_is_missing if {
	absent := {"key": "app", "operator": "DoesNotExist"}
	present := {"key": "app", "operator": "Exists"}
	other := {"key": "app", "operator": "NotIn", "values": ["web"]}
	one := {"key": "app", "operator": "In", "values": ["web"]}

	every e in [absent, other] {
		meta.matches_selector({"matchExpressions": [e]}) with input as bare
		not meta.matches_selector({"matchExpressions": [e]}) with input as labelled
	}
	every e in [present, one] {
		not meta.matches_selector({"matchExpressions": [e]}) with input as bare
		meta.matches_selector({"matchExpressions": [e]}) with input as labelled
	}
}

test_an_operator_that_nobody_knows_matches_nothing if {
	not meta.matches_selector({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}) with input as labelled
}
