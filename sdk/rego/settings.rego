# Package settings reads and validates the policy's settings.
package gleaner.sdk.settings

all := s if {
	s := input.policy.settings
	is_object(s)
} else := {}

# get is the value of a setting, or a default.
get(name, otherwise) := object.get(all, name, otherwise)

# validate is the verdict of the hook validate: Valid, or Invalid with all
# problems. known has the type of each setting: a list of allowed values, or
# "flag", "text", "texts" (a list), "labels" (texts by name), "duration", "kinds"
# (a list of kinds as in package kinds), or "durations" (by kind).
#
#	validate := settings.validate({"after": "duration", "mode": ["Keep", "Wait"]})
validate(known) := {"decision": "Invalid", "reason": concat("; ", problems(known))} if count(problems(known)) > 0

else := {"decision": "Valid"}

# problems are the problems of the settings, sorted by name.
problems(known) := [text | some name in sort(object.keys(all)); text := problem(known, name)]

problem(known, name) := sprintf("unknown setting %s: use %s", [name, concat(", ", sort(object.keys(known)))]) if {
	not name in object.keys(known)
}

problem(known, name) := sprintf("%s must be %s", [name, advice(known[name])]) if {
	not fits(known[name], all[name])
}

advice(known) := text if {
	not is_array(known)
	text := {
		"flag": "true or false",
		"text": "a non-empty string",
		"texts": "a list of non-empty strings, such as [\"a\", \"b\"]",
		"labels": "a map of strings, such as {\"app\": \"web\"}",
		"duration": duration_advice,
		"kinds": "a list of kinds, such as [\"PersistentVolumeClaim\", \"apps/StatefulSet\"]",
		"durations": "durations by kind, such as {\"apps/StatefulSet\": \"90s\", \"PersistentVolumeClaim\": \"168h\"}",
	}[known]
}

advice(known) := sprintf("one of %s", [concat(", ", known)]) if is_array(known)

duration_advice := "a duration such as \"90s\" or \"1h30m\", greater than 0 and at most 720h"

fits(known, value) if value in known

fits("flag", value) if is_boolean(value)

fits("text", value) if is_text(value)

fits("texts", value) if {
	is_list(value)
	every text in value {
		is_text(text)
	}
}

fits("labels", value) if {
	is_object(value)
	every text in value {
		is_string(text)
	}
}

fits("duration", value) if is_duration(value)

fits("kinds", value) if {
	is_list(value)
	every name in value {
		is_kind(name)
	}
}

fits("durations", value) if {
	is_object(value)
	every name, duration in value {
		is_kind(name)
		is_duration(duration)
	}
}

is_list(value) if {
	is_array(value)
	count(value) > 0
}

is_text(value) if {
	is_string(value)
	value != ""
}

is_kind(value) if {
	is_string(value)
	regex.match(`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*$`, value)
}

# is_duration: a verdict may have this duration.
is_duration(value) if {
	is_string(value)
	regex.match(`^([0-9]{1,9}([.][0-9]{1,9})?(h|m|s|ms))+$`, value)
	ns := time.parse_duration_ns(value)
	ns > 0
	ns <= time.parse_duration_ns("720h")
}
