# Package steps writes a finalizer as a sequence of steps:
#
#	finalize := steps.sequence([
#		steps.list("claims", {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace}),
#		[steps.delete(claim.metadata.uid, claim) | some claim in steps.items("claims")],
#		steps.more("claims"),
#		steps.call("bucket", {"method": "DELETE", "url": url}),
#	])
#
# The first step without a result requests it; when all steps are finished, the
# decision is Done. The steps of an inner list are independent, and share a round.
# A step that needs the result of an earlier one is created in a comprehension over
# found or items, which are empty until there is a result.
#
# After Wait the steps start again, without results: put what cannot be repeated
# into once. Temporary errors (Unavailable, Conflict, Expired, and HTTP 429 and
# 5xx) become Wait, with a delay that grows with each attempt, up to five minutes;
# errors that need intervention (NotGranted, Forbidden, Invalid) become Fail.
package gleaner.sdk.steps

import data.gleaner.sdk.clock
import data.gleaner.sdk.verdict

# sequence is the verdict for a list of steps.
sequence(list) := kept(list, outcome(blocked[0], list)) if {
	blocked := [ends | some step in list; ends := step_ends(step); count(ends) > 0]
	count(blocked) > 0
} else := verdict.done

# Steps.

# call sends an HTTP request. The status must be 2xx, 404 or 410: what is deleted
# does not exist then.
call(id, request) := {"id": id, "intent": {"http": request}, "judged": true}

# request sends an HTTP request and accepts any status; see status and body.
request(id, it) := {"id": id, "intent": {"http": it}}

# get gets an object that may not exist; see found.
get(id, target) := {"id": id, "intent": {"get": target}, "fine": {"NotFound"}}

# list lists a page of objects; see items, and more for the following pages.
list(id, what) := {"id": id, "intent": {"list": object.union({"limit": 50}, object.union(what, continued(id)))}}

# create creates an object, unless one with its name exists.
create(id, it) := {"id": id, "intent": {"create": {"object": it}}, "fine": {"AlreadyExists"}}

# patch patches an object, if it exists. The type is "merge", "json" or "apply".
patch(id, target, type, it) := {
	"id": id,
	"intent": {"patch": object.union(target, {"type": type, "patch": it})},
	"fine": {"NotFound"},
}

# delete deletes an object that was read, and no other object with its name.
delete(id, it) := {
	"id": id,
	"intent": {"delete": object.union(target_of(it), {"uid": it.metadata.uid})},
	"fine": {"NotFound"},
}

# event records a Kubernetes event about the object. Its result is ignored. The
# type is "Normal" or "Warning", the reason is in CamelCase.
event(id, type, reason, message) := {
	"id": id,
	"intent": {"event": {"type": type, "reason": reason, "message": message}},
	"fine": {"NotGranted", "Forbidden", "Invalid", "Unavailable", "Conflict", "NotFound", "Expired", "AlreadyExists"},
}

# until waits for a condition, and checks it at an interval. The steps before it
# are repeated each time.
until(condition, interval, reason) := {"holds": condition, "end": verdict.with_reason(verdict.wait_for(interval), reason)}

# fail_if fails permanently if a condition holds.
fail_if(condition, reason) := {"holds": condition == false, "end": verdict.fail(reason)}

# more continues with the next page of a list, in another attempt, after the steps
# before it.
more(id) := {
	"holds": next_page(id) == "",
	"end": verdict.with_reason(verdict.wait_for("1s"), sprintf("more pages of %s", [id])),
	"page": id,
}

# once is a step that is not repeated in later attempts: its id is kept in the
# state, its result is not.
once(step) := object.union(step, {"once": true})

# give_up_by_deadline returns a verdict once this much time is left before the
# object's deadline. It must be the first step.
give_up_by_deadline(left, end) := give_up(
	time.parse_rfc3339_ns(input.deadline) - time.parse_duration_ns(left),
	end,
) if {
	input.deadline
} else := {"holds": true}

# give_up_after returns a verdict once this much time has passed since the object
# was deleted.
give_up_after(duration, end) := give_up(
	time.parse_rfc3339_ns(input.object.metadata.deletionTimestamp) + time.parse_duration_ns(duration),
	end,
) if {
	input.object.metadata.deletionTimestamp
} else := {"holds": true}

give_up(at, end) := {"holds": clock.now < at, "end": end, "at": at}

# Results.

result(id) := object.get(input, ["results", id], {})

# found is a list with the object of a get, create or patch. It is empty if there
# is none, or if the step is not finished.
found(id) := [o | o := result(id).object]

# items are the objects of a list. It is empty if the step is not finished.
items(id) := object.get(result(id), ["list", "items"], [])

# is_gone: a get has found nothing, or a call has returned 404 or 410.
is_gone(id) if result(id).error.reason == "NotFound"

else if status(id) in {404, 410}

else := false

# is_replaced: no object has this UID.
is_replaced(id, uid) if is_gone(id)

else if result(id).object.metadata.uid != uid

else := false

# status is the status of an HTTP response; 0 if there is none.
status(id) := object.get(result(id), ["http", "status"], 0)

# body is the body of an HTTP response; "" if there is none.
body(id) := object.get(result(id), ["http", "body"], "")

# target_of is the target for an object.
target_of(it) := object.union(
	{"apiVersion": it.apiVersion, "kind": it.kind, "name": it.metadata.name},
	{"namespace": n | n := it.metadata.namespace; n != ""},
)

# The state of a step: the verdicts that it stops with, none if it is finished.

step_ends(step) := [end | some one in step; some end in one_ends(one)] if is_array(step)

else := one_ends(step)

one_ends(step) := [] if is_done(step)

else := [verdict.act([object.union(step.intent, {"id": step.id})])] if {
	step.intent
	not input.results[step.id]
} else := [trouble(step, e)] if {
	e := input.results[step.id].error
	not e.reason in object.get(step, "fine", set())
} else := [judgement(step, input.results[step.id].http)] if {
	step.judged
	not is_fine(status(step.id))
} else := [step.end] if {
	step.holds == false
} else := []

is_done(step) if {
	step.once
	step.id in memory("done", [])
}

is_fine(code) if {
	code >= 200
	code < 300
}

is_fine(404)

is_fine(410)

trouble(step, e) := verdict.fail(sprintf("%s: %s. %s", [said(step, e), e.reason, remedy(step, e)])) if {
	e.reason in {"NotGranted", "Forbidden", "Invalid"}
} else := verdict.with_reason(verdict.wait_for(backoff), sprintf("%s: %s", [said(step, e), e.reason]))

said(step, e) := sprintf("%s: %s", [described(step), substring(object.get(e, "message", ""), 0, 200)])

described(step) := sprintf("%s %s", [step.intent.http.method, split(step.intent.http.url, "?")[0]]) if step.intent.http

else := sprintf("create %s %s", [step.intent.create.object.kind, step.intent.create.object.metadata.name]) if step.intent.create

else := sprintf("%s %s %s", [type, what.kind, object.get(what, "name", "")]) if some type, what in step.intent

remedy(step, e) := "The service account of the finalizer does not exist: create it again with its permissions, or remove the finalizer" if {
	object.get(input, "serviceAccountMissing", false)
	e.reason != "Invalid"
	not step.intent.http
} else := "The namespace is being deleted, so nothing can be created in it" if {
	object.get(input, "namespaceTerminating", false)
	step.intent.create
} else := "If a grant is missing, add it to spec.grants of the finalizer" if {
	e.reason == "NotGranted"
} else := "The service account of the finalizer lacks the permission: allow it with a role and a binding" if {
	e.reason == "Forbidden"
} else := "The module has to send a valid intent"

judgement(step, response) := verdict.with_reason(verdict.wait_for(backoff), answered(step, response)) if {
	passes(response.status)
} else := verdict.fail(answered(step, response))

passes(code) if code in {408, 425, 429}

passes(code) if code >= 500

answered(step, response) := sprintf("%s returned status %d: %s", [described(step), response.status, substring(object.get(response, "body", ""), 0, 200)])

backoff := waits[min([object.get(input, "attempt", 1), count(waits)]) - 1]

waits := ["1s", "2s", "4s", "8s", "16s", "32s", "64s", "128s", "256s", "300s"]

# Precedence of verdicts: Act, then Fail, then Wait.

outcome(ends, list) := act(intents) if {
	intents := [intent | some end in ends; some intent in object.get(end, "intents", [])]
	count(intents) > 0
} else := failed[0] if {
	failed := [end | some end in ends; not end.decision == "Wait"]
} else := capped(ends[0], list)

act(intents) := verdict.with_reason(verdict.wait_for("1s"), "all rounds of this attempt were used") if {
	object.get(input, "round", 1) >= 16
} else := verdict.act(array.slice(intents, 0, 64))

# capped is a wait that does not extend beyond the time to give up.
capped(end, list) := object.union(end, {"after": sprintf("%dms", [ceil(left / 1000000)])}) if {
	left := min([rest | some step in list; rest := step.at - clock.now; rest > 0])
	left < time.parse_duration_ns(object.get(end, "after", "30s"))
} else := end

# The state.

# memory is a value that the steps have kept in the state.
memory(name, otherwise) := object.get(input, ["state", name], otherwise)

continued(id) := {"continue": token | token := memory("pages", {})[id]; not result(id).error.reason == "Expired"}

next_page(id) := object.get(result(id), ["list", "continue"], "")

# kept adds the state to a verdict, if it has changed.
kept(list, end) := verdict.with_state(end, state) if {
	end.decision in {"Act", "Wait"}
	state := {name: value |
		some name, value in {"done": done_after(list), "pages": pages_after(list, end)}
		count(value) > 0
	}
	state != object.get(input, "state", {})
} else := end

done_after(list) := array.concat(before, [step.id |
	some step in flat(list)
	step.once
	not step.id in before
	input.results[step.id]
	count(one_ends(step)) == 0
]) if {
	before := memory("done", [])
}

flat(list) := [one | some step in list; some one in as_list(step)]

as_list(step) := step if is_array(step)

else := [step]

# pages_after are those of the state, with the next page of a list whose steps are
# through, and without one that has become too old.
pages_after(list, end) := {id: token |
	some id, token in object.union(memory("pages", {}), turned(list, end))
	not result(id).error.reason == "Expired"
}

# turned is the next page of the list that the verdict waits for.
turned(list, end) := {step.page: next_page(step.page) |
	some step in flat(list)
	step.page
	step.end.reason == end.reason
	next_page(step.page) != ""
}
