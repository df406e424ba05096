package gleaner

job(name, created, status) := {
	"apiVersion": "batch/v1", "kind": "Job",
	"metadata": {
		"name": name, "namespace": "shop", "creationTimestamp": created, "labels": {"app": "backup"},
		"ownerReferences": [{"uid": "u", "controller": true}],
	},
	"status": {"conditions": [{"type": "Complete", "status": status}]},
}

asked := job("b", "2026-01-02T00:00:00Z", "True")

decide(object, results) := verdict_of if {
	verdict_of := retain with input as {"object": object, "results": results, "policy": {"settings": {}}}
}

decide_by_label(object, results) := verdict_of if {
	verdict_of := retain with input as {"object": object, "results": results, "policy": {"settings": {"label": "app"}}}
}

read(items) := {"others": {"list": {"items": items}}}

test_what_has_not_succeeded_is_left_to_others if {
	decide(job("b", "2026-01-02T00:00:00Z", "False"), {}) == {"decision": "Abstain"}
}

test_an_unknown_kind_is_left_to_others if {
	decide({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}, "status": {"phase": "Succeeded"}}, {}) == {"decision": "Abstain"}
}

test_similar_objects_are_read if {
	decide(asked, {}) == {"decision": "Act", "intents": [{
		"id": "others",
		"list": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "shop", "limit": 100},
	}]}
}

test_with_a_label_those_that_have_it_are_read if {
	decide_by_label(asked, {}).intents[0].list.labelSelector == "app=backup"
}

test_the_next_page_is_read if {
	decide(asked, {"others": {"list": {"items": [], "continue": "more"}}}).intents[0].list.continue == "more"
}

test_the_newest_that_succeeded_stays if {
	decide(asked, read([job("a", "2026-01-01T00:00:00Z", "True"), asked, job("c", "2026-01-03T00:00:00Z", "False")])).decision == "Keep"
}

test_an_older_one_does_not if {
	decide(asked, read([asked, job("c", "2026-01-03T00:00:00Z", "True")])) == {"decision": "Abstain"}
}

test_of_two_of_the_same_second_the_one_whose_name_comes_last_stays if {
	decide(asked, read([asked, job("c", "2026-01-02T00:00:00Z", "True")])) == {"decision": "Abstain"}
	decide(asked, read([asked, job("a", "2026-01-02T00:00:00Z", "True")])).decision == "Keep"
}

test_those_of_another_controller_do_not_count if {
	other := json.patch(job("c", "2026-01-03T00:00:00Z", "True"), [{"op": "replace", "path": "/metadata/ownerReferences/0/uid", "value": "v"}])
	decide(asked, read([asked, other])).decision == "Keep"
	decide_by_label(asked, read([asked, other])) == {"decision": "Abstain"}
}

test_those_with_another_label_do_not_count if {
	other := json.patch(job("c", "2026-01-03T00:00:00Z", "True"), [{"op": "replace", "path": "/metadata/labels/app", "value": "other"}])
	decide_by_label(asked, read([asked, other])).decision == "Keep"
}

test_a_phase_says_it_as_well if {
	backup := {"apiVersion": "velero.io/v1", "kind": "Backup", "metadata": {"name": "b", "namespace": "velero", "creationTimestamp": "2026-01-02T00:00:00Z"}, "status": {"phase": "Completed"}}
	decide(backup, read([backup])).decision == "Keep"
}

test_what_cannot_be_read_keeps_the_object if {
	decide(asked, {"others": {"error": {"reason": "Forbidden"}}}).decision == "Keep"
}

test_settings_are_validated if {
	validate.decision == "Valid" with input as {"policy": {"settings": {"label": "app"}}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"label": 1}}}
}
