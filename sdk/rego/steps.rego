# Package steps writes a finalizer as steps that are taken one after the other:
#
#	finalize := steps.in_turn([
#		steps.list("claims", {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace}),
#		[steps.delete(claim.metadata.uid, claim) | some claim in steps.items("claims")],
#		steps.more("claims"),
#		steps.call("bucket", {"method": "DELETE", "url": url}),
#	])
#
# The first step whose result is not there asks for it; when all are through, the
# decision is Done. The steps of an inner list do not depend on each other, and
# take one round. A step that needs an earlier one's result is made in a
# comprehension over found or items, which are empty until the result is there.
#
# After Wait the steps begin anew, with no results: what can't be repeated is a
# step of once. What may go away by itself (Unavailable, Conflict, Expired, and
# HTTP's 429 and 5xx) becomes Wait, longer with each attempt, up to five minutes;
# what needs a human (NotGranted, Forbidden, Invalid) becomes Fail.
package gleaner.sdk.steps

import data.gleaner.sdk.clock
import data.gleaner.sdk.verdict

# in_turn is the verdict.
in_turn(list) := kept(list, outcome(blocked[0], list)) if {
	blocked := [ends | some step in list; ends := step_ends(step); count(ends) > 0]
	count(blocked) > 0
} else := verdict.done

# Steps.

# call sends an HTTP request, whose response has to be 2xx, or 404 or 410, since
# what is to be deleted is gone then.
call(id, request) := {"id": id, "intent": {"http": request}, "judged": true}

# request sends an HTTP request, whatever its response is; see status and body.
request(id, it) := {"id": id, "intent": {"http": it}}

# get reads an object, if there is one; see found.
get(id, target) := {"id": id, "intent": {"get": target}, "fine": {"NotFound"}}

# list reads a page of objects; see items, and more for the pages after it.
list(id, what) := {"id": id, "intent": {"list": object.union({"limit": 50}, object.union(what, continued(id)))}}

# create creates an object, if there is none of its name.
create(id, it) := {"id": id, "intent": {"create": {"object": it}}, "fine": {"AlreadyExists"}}

# patch changes an object, if it is there. The type is "merge", "json" or "apply".
patch(id, target, type, it) := {
	"id": id,
	"intent": {"patch": object.union(target, {"type": type, "patch": it})},
	"fine": {"NotFound"},
}

# delete deletes an object that was read, and no other of its name.
delete(id, it) := {
	"id": id,
	"intent": {"delete": object.union(target_of(it), {"uid": it.metadata.uid})},
	"fine": {"NotFound"},
}

# event tells of something. What comes of it does not matter. The type is
# "Normal" or "Warning", the reason one word.
event(id, type, reason, message) := {
	"id": id,
	"intent": {"event": {"type": type, "reason": reason, "message": message}},
	"fine": {"NotGranted", "Forbidden", "Invalid", "Unavailable", "Conflict", "NotFound", "Expired", "AlreadyExists"},
}

# until waits for a condition, and looks so often. The steps before it are what polls.
until(condition, interval, reason) := {"holds": condition, "end": verdict.because(verdict.wait_for(interval), reason)}

# fail_if gives up for good if a condition holds.
fail_if(condition, reason) := {"holds": condition == false, "end": verdict.fail(reason)}

# more goes on with the next page of a list, in another attempt, once the steps
# before it are through.
more(id) := {
	"holds": next_page(id) == "",
	"end": verdict.because(verdict.wait_for("1s"), sprintf("there are more pages of %s", [id])),
	"page": id,
}

# once takes one step that is not to be taken again when it is through, in later
# attempts either: its id is kept in the state, what came of it is not.
once(step) := object.union(step, {"once": true})

# give_up_by_deadline is a verdict for when so much is left before the deadline of
# the object. It comes first in the list.
give_up_by_deadline(left, end) := give_up(
	time.parse_rfc3339_ns(input.deadline) - time.parse_duration_ns(left),
	end,
) if {
	input.deadline
} else := {"holds": true}

# give_up_after is a verdict for when the object was deleted so long ago.
give_up_after(duration, end) := give_up(
	time.parse_rfc3339_ns(input.object.metadata.deletionTimestamp) + time.parse_duration_ns(duration),
	end,
) if {
	input.object.metadata.deletionTimestamp
} else := {"holds": true}

give_up(at, end) := {"holds": clock.now < at, "end": end, "at": at}

# Results.

result(id) := object.get(input, ["results", id], {})

# found is the object of a get, create or patch, in a list: none if there is none,
# or if the step is not through.
found(id) := [o | o := result(id).object]

# items are the objects of a list: none if the step is not through.
items(id) := object.get(result(id), ["list", "items"], [])

# is_gone: a get has found nothing, or a call was answered 404 or 410.
is_gone(id) if result(id).error.reason == "NotFound"

else if status(id) in {404, 410}

else := false

# is_replaced: there is no object of this UID any more.
is_replaced(id, uid) if is_gone(id)

else if result(id).object.metadata.uid != uid

else := false

# status is that of an HTTP response; 0 if there is none.
status(id) := object.get(result(id), ["http", "status"], 0)

# body is that of an HTTP response; "" if there is none.
body(id) := object.get(result(id), ["http", "body"], "")

# target_of names an object.
target_of(it) := object.union(
	{"apiVersion": it.apiVersion, "kind": it.kind, "name": it.metadata.name},
	{"namespace": n | n := it.metadata.namespace; n != ""},
)

# How a step stands: the verdicts that it stops with, none if it is through.

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
} else := verdict.because(verdict.wait_for(backoff), sprintf("%s: %s", [said(step, e), e.reason]))

said(step, e) := sprintf("%s: %s", [described(step), substring(object.get(e, "message", ""), 0, 200)])

described(step) := sprintf("%s %s", [step.intent.http.method, split(step.intent.http.url, "?")[0]]) if step.intent.http

else := sprintf("create %s %s", [step.intent.create.object.kind, step.intent.create.object.metadata.name]) if step.intent.create

else := sprintf("%s %s %s", [type, what.kind, object.get(what, "name", "")]) if some type, what in step.intent

remedy(step, e) := "The service account of the finalizer does not exist any more: create it again with its rights, or take the finalizer off" if {
	object.get(input, "serviceAccountMissing", false)
	e.reason != "Invalid"
	not step.intent.http
} else := "The namespace is being deleted, and nothing can be created in it any more" if {
	object.get(input, "namespaceTerminating", false)
	step.intent.create
} else := "If a grant is missing, write it into spec.grants of the finalizer" if {
	e.reason == "NotGranted"
} else := "Give the service account of the finalizer the right to do it, with a role and a binding" if {
	e.reason == "Forbidden"
} else := "The module has to ask for something else"

judgement(step, response) := verdict.because(verdict.wait_for(backoff), answered(step, response)) if {
	passes(response.status)
} else := verdict.fail(answered(step, response))

passes(code) if code in {408, 425, 429}

passes(code) if code >= 500

answered(step, response) := sprintf("%s was answered %d: %s", [described(step), response.status, substring(object.get(response, "body", ""), 0, 200)])

backoff := waits[min([object.get(input, "attempt", 1), count(waits)]) - 1]

waits := ["1s", "2s", "4s", "8s", "16s", "32s", "64s", "128s", "256s", "300s"]

# What counts of several ends: to act, or else to fail, or else to wait.

outcome(ends, list) := act(intents) if {
	intents := [intent | some end in ends; some intent in object.get(end, "intents", [])]
	count(intents) > 0
} else := failed[0] if {
	failed := [end | some end in ends; not end.decision == "Wait"]
} else := capped(ends[0], list)

act(intents) := verdict.because(verdict.wait_for("1s"), "all rounds of this attempt are used up") if {
	object.get(input, "round", 1) >= 16
} else := verdict.act(array.slice(intents, 0, 64))

# capped is a wait that does not last beyond the time to give up.
capped(end, list) := object.union(end, {"after": sprintf("%dms", [ceil(left / 1000000)])}) if {
	left := min([rest | some step in list; rest := step.at - clock.now; rest > 0])
	left < time.parse_duration_ns(object.get(end, "after", "30s"))
} else := end

# The state.

# memory is what the steps have kept in the state.
memory(name, otherwise) := object.get(input, ["state", name], otherwise)

continued(id) := {"continue": token | token := memory("pages", {})[id]; not result(id).error.reason == "Expired"}

next_page(id) := object.get(result(id), ["list", "continue"], "")

# kept adds the state to a verdict, if it has changed.
kept(list, end) := verdict.remembering(end, state) if {
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

# turned has the next page of the list that the verdict waits for.
turned(list, end) := {step.page: next_page(step.page) |
	some step in flat(list)
	step.page
	step.end.reason == end.reason
	next_page(step.page) != ""
}
