# Package meta reads the metadata of the object: its labels, annotations and
# finalizers.
package gleaner.sdk.meta

labels := object.get(input.object.metadata, "labels", {})

annotations := object.get(input.object.metadata, "annotations", {})

# labelled: the object has a label, with this value.
labelled(key, value) if labels[key] == value

# annotated: the object has an annotation, with this value.
annotated(key, value) if annotations[key] == value

# has_finalizer: something must still be done before the object may go.
has_finalizer(name) if name in object.get(input.object.metadata, "finalizers", [])

# selected: the object's labels match a selector, of matchLabels, matchExpressions
# or both. As in Kubernetes, an empty selector matches everything.
selected(selector) if {
	every key, value in object.get(selector, "matchLabels", {}) {
		labelled(key, value)
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
