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
