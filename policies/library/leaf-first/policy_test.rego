package gleaner

asked(kinds_present, given) := answered if {
	answered := propagate with input as {
		"dependents": {"count": count(kinds_present), "byKind": [object.union(kind, {"count": 1}) | some kind in kinds_present]},
		"policy": {"settings": given},
	}
}

pod := {"group": "", "kind": "Pod"}

claim := {"group": "", "kind": "PersistentVolumeClaim"}

job := {"group": "batch", "kind": "Job"}

test_all_dependents_are_deleted_first if {
	asked([claim, pod, job], {}).order == [[claim, pod, job]]
}

test_kinds_can_come_first if {
	asked([claim, pod, job], {"first": ["batch/Job"]}).order == [[job], [claim, pod]]
}

test_kinds_can_come_last if {
	asked([claim, pod, job], {"last": ["PersistentVolumeClaim"]}).order == [[pod, job]]
	asked([claim, pod, job], {"first": ["Pod"], "last": ["PersistentVolumeClaim"]}).order == [[pod], [job]]
}

test_an_object_whose_dependents_all_come_last_is_deleted_after_them if {
	answered := asked([claim], {"last": ["PersistentVolumeClaim"]})
	answered.decision == "Foreground"
	not answered.order
}

test_waves_have_at_most_eight_kinds if {
	many := [{"group": "example.com", "kind": sprintf("Kind%d", [i])} | some i in numbers.range(1, 20)]
	[count(wave) | some wave in asked(many, {}).order] == [8, 8, 4]
}

test_an_object_without_dependents_is_left_to_others if {
	asked([], {}).decision == "Abstain"
}

test_settings_are_checked if {
	validate.decision == "Valid" with input as {"policy": {"settings": {"first": ["batch/Job"], "last": ["PersistentVolumeClaim"]}}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"last": ["persistentvolumeclaims"]}}}
}
