package gleaner

claim(labels) := {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-db-0", "labels": labels}}

asked(object, given) := answered if {
	answered := collect with input as {"hook": "collect", "object": object, "policy": {"settings": given}}
}

test_a_claim_stays if {
	asked(claim({}), {}).decision == "Orphan"
}

test_a_snapshot_stays_in_any_version if {
	every version in ["v1", "v1beta1"] {
		object := {"apiVersion": concat("/", ["snapshot.storage.k8s.io", version]), "kind": "VolumeSnapshot", "metadata": {}}
		asked(object, {}).decision == "Orphan"
	}
}

test_another_kind_is_none_of_its_business if {
	asked({"apiVersion": "v1", "kind": "Secret", "metadata": {}}, {}).decision == "Abstain"
	asked({"apiVersion": "example.com/v1", "kind": "PersistentVolumeClaim", "metadata": {}}, {}).decision == "Abstain"
}

test_the_kinds_can_be_set if {
	asked(claim({}), {"kinds": ["Secret"]}).decision == "Abstain"
	asked({"apiVersion": "v1", "kind": "Secret", "metadata": {}}, {"kinds": ["Secret"]}).decision == "Orphan"
}

test_a_label_gives_data_up if {
	scratch := {"unless": {"data": "scratch"}}
	asked(claim({"data": "scratch"}), scratch).decision == "Abstain"
	asked(claim({"data": "precious"}), scratch).decision == "Orphan"
	asked(claim({}), scratch).decision == "Orphan"
}

test_settings_are_checked if {
	validate.decision == "Valid" with input as {"policy": {"settings": {"kinds": ["Secret"], "unless": {"a": "b"}}}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"kinds": "Secret"}}}
}
