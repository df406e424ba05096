package gleaner.sdk.clock_test

import data.gleaner.sdk.clock

at := {
	"time": "2026-01-02T12:00:00Z",
	"ownersAbsentSince": "2026-01-02T11:00:00.5Z",
	"object": {"metadata": {"creationTimestamp": "2026-01-01T12:00:00Z"}},
}

test_now_is_the_time_of_the_request if {
	clock.now == 1767355200000000000 with input as at
}

test_age_is_counted_from_creation if {
	clock.older_than("24h") with input as at
	clock.older_than("1d") with input as at
	not clock.older_than("24h1ns") with input as at
}

test_an_object_without_a_creation_is_not_old if {
	not clock.older_than("0s") with input as {"time": "2026-01-02T12:00:00Z", "object": {"metadata": {}}}
}

test_time_without_an_owner_is_counted_to_the_nanosecond if {
	clock.without_owners_for("59m59.5s") with input as at
	not clock.without_owners_for("1h") with input as at
}

test_what_is_left_can_be_waited_for if {
	clock.remaining("2026-01-02T11:59:59.5Z", "1s") == "1s" with input as at
	clock.remaining("2026-01-02T11:30:00Z", "1h") == "1800s" with input as at
	not clock.remaining("2026-01-02T11:00:00Z", "1h") with input as at
}

test_a_time_to_come_is_not_past if {
	not clock.elapsed("2026-01-03T00:00:00Z", "0s") with input as at
}

test_what_is_no_time_is_not_past if {
	not clock.elapsed("yesterday", "0s") with input as at
	not clock.elapsed("2026-01-01T12:00:00Z", "soon") with input as at
}
