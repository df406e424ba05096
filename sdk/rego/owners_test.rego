package gleaner.sdk.owners_test

import data.gleaner.sdk.owners

owner(kind, standing) := {"reference": {"apiVersion": "apps/v1", "kind": kind, "name": "a"}, "status": standing}

test_all_absent_needs_an_owner if {
	not owners.all_absent with input as {}
	not owners.all_absent with input as {"owners": []}
	owners.none with input as {}
}

test_all_absent_needs_every_owner_to_be_gone if {
	owners.all_absent with input.owners as [owner("ReplicaSet", "Absent"), owner("Deployment", "Absent")]

	every standing in ["Present", "Waiting", "Orphaning", "Unresolvable", "Unknown", ""] {
		not owners.all_absent with input.owners as [owner("ReplicaSet", "Absent"), owner("Deployment", standing)]
	}
}

test_an_owner_that_says_nothing_is_unknown if {
	silent := {"reference": {"kind": "Job"}}
	not owners.all_absent with input.owners as [silent]
	owners.some_unknown with input.owners as [silent]
	owners.some_unknown with input.owners as [owner("Job", "")]
	not owners.some_unknown with input.owners as [owner("Job", "Absent")]
}

test_some_present_needs_one if {
	owners.some_present with input.owners as [owner("Job", "Absent"), owner("Job", "Present")]
	not owners.some_present with input.owners as [owner("Job", "Absent")]
}

test_owners_are_found_by_kind_in_any_version if {
	core := {"reference": {"apiVersion": "v1", "kind": "Deployment", "name": "core"}}
	given := [owner("Deployment", "Present"), core]
	owners.of_kind("apps", "Deployment") == [owner("Deployment", "Present")] with input.owners as given
	owners.of_kind("", "Deployment") == [core] with input.owners as given
	owners.of_kind("", "Job") == [] with input.owners as given
}

test_the_controller_is_the_one_that_manages if {
	manager := {"reference": {"kind": "Job", "controller": true}}
	owners.controller == manager with input.owners as [{"reference": {"controller": false}}, {"reference": {}}, manager]
	not owners.controller with input.owners as [owner("Job", "Present")]
}
