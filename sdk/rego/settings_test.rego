package gleaner.sdk.settings_test

import data.gleaner.sdk.settings

test_a_setting_is_read if {
	settings.get("keep", "1h") == "2h" with input as {"policy": {"settings": {"keep": "2h"}}}
}

test_a_setting_that_was_not_set_is_what_the_author_says if {
	settings.get("keep", "1h") == "1h" with input as {"policy": {"settings": {}}}
	settings.get("keep", "1h") == "1h" with input as {"policy": {"settings": null}}
	settings.get("keep", "1h") == "1h" with input as {}
}

test_false_is_a_setting if {
	settings.get("keep", true) == false with input as {"policy": {"settings": {"keep": false}}}
}

known := {
	"flag": "flag",
	"text": "text",
	"texts": "texts",
	"labels": "labels",
	"duration": "duration",
	"kinds": "kinds",
	"durations": "durations",
	"mode": ["Keep", "Wait"],
}

refused(name, value) := problems if {
	problems := settings.problems(known) with input as {"policy": {"settings": {name: value}}}
}

test_no_settings_are_fine if {
	settings.validate(known) == {"decision": "Valid"} with input as {"policy": {}}
}

test_good_settings_are_fine if {
	good := {
		"flag": false,
		"text": "a",
		"texts": ["a", "b"],
		"labels": {"app": ""},
		"duration": "1h30m",
		"kinds": ["Pod", "apps/StatefulSet", "snapshot.storage.k8s.io/VolumeSnapshot"],
		"durations": {"Pod": "720h", "apps/Deployment": "1.5s"},
		"mode": "Wait",
	}
	settings.validate(known) == {"decision": "Valid"} with input as {"policy": {"settings": good}}
}

test_each_bad_setting_is_told_in_the_order_of_names if {
	verdict := settings.validate({"after": "duration", "mode": ["Keep", "Wait"]}) with input as {"policy": {"settings": {
		"mode": "keep",
		"after": "soon",
		"wiat": true,
	}}}
	verdict.decision == "Invalid"
	verdict.reason == concat("; ", [
		"after must be a duration such as \"90s\" or \"1h30m\", greater than 0 and at most 720h",
		"mode must be one of Keep, Wait",
		"unknown setting wiat: use after, mode",
	])
}

test_what_is_of_another_type_is_refused if {
	bad := {
		"flag": ["true", 1, null],
		"text": ["", 1, ["a"], null],
		"texts": ["a", [], [""], [1], {"a": "b"}, null],
		"labels": ["a", ["a"], {"app": 1}, null],
		"kinds": ["Pod", [], ["pods"], ["apps/v1/Deployment"], ["Apps/Deployment"], [1], null],
		"durations": ["1h", [], {"pods": "1h"}, {"Pod": "1d"}, {"Pod": 1}, null],
		"mode": ["", "keep", 1, null],
	}
	every name, values in bad {
		every value in values {
			count(refused(name, value)) == 1
		}
	}
}

test_what_a_verdict_can_not_have_is_no_duration if {
	every value in ["", "0s", "0h0m", "-1h", "1d", "1", 3600, "1h ", "720h1ms", "h", null, "999999999h"] {
		count(refused("duration", value)) == 1
	}
}
