# Package owners reads the status of the object's owners. An owner that could not
# be read is Unknown. No rule here treats it as absent.
package gleaner.sdk.owners

# all are the owners of the object, each with its status.
all := object.get(input, "owners", [])

# with_status are the owners with a status: "Present", "Absent", "Waiting",
# "Orphaning", "Unresolvable" or "Unknown".
with_status(name) := [owner | some owner in all; status(owner) == name]

# status is the status of an owner. Without one it is Unknown.
status(owner) := s if {
	s := object.get(owner, "status", "Unknown")
	s != ""
} else := "Unknown"

# none: the object has no owner references.
none if count(all) == 0

# all_absent: the object has owners, and all of them are absent.
all_absent if {
	count(all) > 0
	every owner in all {
		status(owner) == "Absent"
	}
}

# some_present: at least one owner is present.
some_present if count(with_status("Present")) > 0

# some_unknown: at least one owner could not be read.
some_unknown if {
	some owner in all
	status(owner) in {"Unknown", "Unresolvable"}
}

# of_kind are the owners of a kind, in any version. The core group is "".
of_kind(group, kind) := [owner |
	some owner in all
	owner.reference.kind == kind
	group_of(owner.reference.apiVersion) == group
]

# controller is the owner that is the object's controller, if there is one.
controller := owner if {
	some owner in all
	owner.reference.controller == true
}

# group_of is the group of an apiVersion: "apps" of "apps/v1", and "" of "v1".
group_of(version) := split(version, "/")[0] if contains(version, "/")

else := ""
