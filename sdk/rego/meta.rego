# Package meta reads the metadata of the object: its labels, annotations and
# finalizers.
package gleaner.sdk.meta

labels := object.get(input.object.metadata, "labels", {})

annotations := object.get(input.object.metadata, "annotations", {})

# has_label: the object has a label, with this value.
has_label(key, value) if labels[key] == value

# has_annotation: the object has an annotation, with this value.
has_annotation(key, value) if annotations[key] == value

# has_finalizer: the object has a finalizer.
has_finalizer(name) if name in object.get(input.object.metadata, "finalizers", [])

# matches_selector: the object's labels match a selector with matchLabels,
# matchExpressions or both. As in Kubernetes, an empty selector matches everything.
matches_selector(selector) if {
	every key, value in object.get(selector, "matchLabels", {}) {
		has_label(key, value)
	}
	every expression in object.get(selector, "matchExpressions", []) {
		holds(expression)
	}
}

holds(e) if {
	e.operator == "In"
	labels[e.key] in e.values
}

holds(e) if {
	e.operator == "NotIn"
	not listed(e)
}

holds(e) if {
	e.operator == "Exists"
	e.key in object.keys(labels)
}

holds(e) if {
	e.operator == "DoesNotExist"
	not e.key in object.keys(labels)
}

listed(e) if labels[e.key] in e.values
