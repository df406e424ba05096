# Package owners asks how the owners of the object stand. An owner that could not
# be read is Unknown. It is not gone, and no rule here counts it as gone.
package gleaner.sdk.owners

# all are the owners that the object names, each with its standing.
all := object.get(input, "owners", [])

# standing gives the owners that stand so: "Present", "Absent", "Waiting",
# "Orphaning", "Unresolvable" or "Unknown".
standing(name) := [owner | some owner in all; stands(owner) == name]

# stands is how one owner stands. To say nothing means Unknown.
stands(owner) := s if {
	s := object.get(owner, "standing", "Unknown")
	s != ""
} else := "Unknown"

# none: the object names no owner.
none if count(all) == 0

# all_absent: the object names owners, and each of them is known to be gone.
all_absent if {
	count(all) > 0
	every owner in all {
		stands(owner) == "Absent"
	}
}

# some_present: at least one owner is there and stays.
some_present if count(standing("Present")) > 0

# some_unknown: at least one owner could not be read.
some_unknown if {
	some owner in all
	stands(owner) in {"Unknown", "Unresolvable"}
}

# of_kind gives the owners of a kind, whatever its version. The group of the core
# kinds is "".
of_kind(group, kind) := [owner |
	some owner in all
	owner.reference.kind == kind
	group_of(owner.reference.apiVersion) == group
]

# controller is the owner that manages the object, if one does.
controller := owner if {
	some owner in all
	owner.reference.controller == true
}

# group_of is the group of an apiVersion: "apps" of "apps/v1", and "" of "v1".
group_of(version) := split(version, "/")[0] if contains(version, "/")

else := ""
