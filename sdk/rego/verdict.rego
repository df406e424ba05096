# Package verdict has the verdicts, and functions that add fields to them.
#
#	import data.gleaner.sdk.verdict
#
#	collect := verdict.with_reason(verdict.delete, "all owners are absent") if owners.all_absent
#	else := verdict.abstain
package gleaner.sdk.verdict

# abstain leaves the decision to the next policy, and finally to the default
# behavior of Kubernetes.
abstain := {"decision": "Abstain"}

# wait asks for another evaluation in 30 seconds.
wait := {"decision": "Wait"}

# For collect.

delete := {"decision": "Delete"}

# orphan keeps the object and removes its references to absent owners. For
# propagate, it keeps the dependents.
orphan := {"decision": "Orphan"}

# For propagate.

background := {"decision": "Background"}

foreground := {"decision": "Foreground"}

# For protect.

# allow allows the deletion that a user requests.
allow := {"decision": "Allow"}

# deny denies it: the user gets the reason, which should say what to do.
deny(reason) := {"decision": "Deny", "reason": reason}

# For retain.

# remove has an object removed that a retention policy removes.
remove := {"decision": "Remove"}

# keep keeps it.
keep(reason) := {"decision": "Keep", "reason": reason}

# keep_for keeps it at least for a duration, such as "24h".
keep_for(duration, reason) := {"decision": "Keep", "after": duration, "reason": reason}

# For finalize.

done := {"decision": "Done"}

# fail fails permanently: the object is kept until someone intervenes.
fail(reason) := {"decision": "Fail", "reason": reason}

# act asks the host to carry out intents; the policy is then evaluated again with
# their results.
act(intents) := {"decision": "Act", "intents": intents}

# For validate.

valid := {"decision": "Valid"}

invalid(reason) := {"decision": "Invalid", "reason": reason}

# wait_for asks for another evaluation after a duration, such as "10m".
wait_for(duration) := {"decision": "Wait", "after": duration}

# delete_after deletes the object once it has had no owner for a duration.
delete_after(duration) := {"decision": "Delete", "delay": duration}

# with_reason adds a reason, an explanation for people.
with_reason(verdict, reason) := object.union(verdict, {"reason": reason})

# with_state adds a state, which the next request contains.
with_state(verdict, state) := object.union(verdict, {"state": state})

# with_propagation sets the propagation policy of a delete: "Background",
# "Foreground" or "Orphan".
with_propagation(verdict, policy) := object.union(verdict, {"propagation": policy})

# with_grace_period sets the grace period of a delete in seconds, and with foreground,
# that of everything below the object.
with_grace_period(verdict, seconds) := object.union(verdict, {"gracePeriodSeconds": seconds})

# with_inherited_grace_period has foreground use the grace period of the request to delete
# the object, if that has one, in place of the verdict's.
with_inherited_grace_period(verdict) := object.union(verdict, {"inheritGracePeriod": true})

# with_order sets the order in which foreground deletes dependents: a list of waves, each
# of which is a list of kinds, such as {"group": "apps", "kind": "Deployment"}. Kinds that
# are in no wave come last.
with_order(verdict, waves) := object.union(verdict, {"order": waves})
