package gleaner

about(kind, annotations, standing) := {
	"apiVersion": "v1",
	"object": {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "annotations": annotations}},
	"owners": [{"reference": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}, "status": standing}],
}

asked(request, given) := answered if {
	answered := collect with input as object.union(request, {"policy": {"settings": given}})
}

test_an_hour_is_given_without_settings if {
	asked(about("Secret", {}, "Absent"), {}) == {
		"decision": "Delete",
		"delay": "1h",
		"reason": "it is deleted 1h after its last owner is gone",
	}
}

test_a_kind_can_be_given_more if {
	given := {"after": "10m", "byKind": {"PersistentVolumeClaim": "168h"}}
	asked(about("PersistentVolumeClaim", {}, "Absent"), given).delay == "168h"
	asked(about("Secret", {}, "Absent"), given).delay == "10m"
}

test_an_object_can_ask_for_a_time_of_its_own if {
	given := {"annotation": "grace", "byKind": {"Secret": "2h"}}
	asked(about("Secret", {"grace": "30s"}, "Absent"), given).delay == "30s"
	asked(about("Secret", {}, "Absent"), given).delay == "2h"
	asked(about("Secret", {"grace": "30s"}, "Absent"), {}).delay == "1h"
}

test_nonsense_in_the_annotation_keeps_the_object if {
	every text in ["soon", "7d", "", "0s", "721h"] {
		asked(about("Secret", {"grace": text}, "Absent"), {"annotation": "grace"}).decision == "Wait"
	}
}

test_an_annotation_that_may_not_be_read_may_be_there if {
	unread := object.union(about("Secret", {}, "Absent"), {"withheld": ["object"]})
	asked(unread, {"annotation": "grace"}).decision == "Wait"
	asked(unread, {}).decision == "Delete"
}

test_a_foreground_deletion_is_held_up_unless_set_otherwise if {
	asked(about("Secret", {}, "Waiting"), {}).delay == "1h"
	asked(about("Secret", {}, "Waiting"), {"foreground": "Abstain"}).decision == "Abstain"
	asked(about("Secret", {}, "Absent"), {"foreground": "Abstain"}).delay == "1h"
}

test_settings_are_checked if {
	given := {"after": "1h", "byKind": {"apps/Deployment": "2h"}, "annotation": "grace", "foreground": "Delay"}
	validate.decision == "Valid" with input as {"policy": {"settings": given}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"after": "7d"}}}
}
