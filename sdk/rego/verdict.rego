# Package verdict has a name for each verdict, and what can be added to one.
#
#	import data.gleaner.sdk.verdict
#
#	collect := verdict.because(verdict.delete, "nobody owns it") if owners.all_absent
#	else := verdict.abstain
package gleaner.sdk.verdict

# abstain leaves the answer to the next policy, and at the end to what Kubernetes does.
abstain := {"decision": "Abstain"}

# wait has the question put again in 30 seconds.
wait := {"decision": "Wait"}

# For collect.

delete := {"decision": "Delete"}

# orphan keeps the object, without the references to owners that are gone. For
# propagate, it leaves the dependents alone.
orphan := {"decision": "Orphan"}

# For propagate.

background := {"decision": "Background"}

foreground := {"decision": "Foreground"}

# For finalize.

done := {"decision": "Done"}

# fail gives up for good: a human has to look at it.
fail(reason) := {"decision": "Fail", "reason": reason}

# act asks the host to carry out intents, and to ask again with their results.
act(intents) := {"decision": "Act", "intents": intents}

# For validate.

valid := {"decision": "Valid"}

invalid(reason) := {"decision": "Invalid", "reason": reason}

# wait_for has the question put again after a duration, such as "10m".
wait_for(duration) := {"decision": "Wait", "after": duration}

# delete_after deletes the object once it has had no owner for a duration.
delete_after(duration) := {"decision": "Delete", "delay": duration}

# because adds a reason, which is shown to people.
because(verdict, reason) := object.union(verdict, {"reason": reason})

# remembering adds a state, which the next request brings back.
remembering(verdict, state) := object.union(verdict, {"state": state})

# propagating says how a delete is passed on: "Background", "Foreground" or "Orphan".
propagating(verdict, policy) := object.union(verdict, {"propagation": policy})

# within says how long a deleted object may take to stop.
within(verdict, seconds) := object.union(verdict, {"gracePeriodSeconds": seconds})
