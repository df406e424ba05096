package gleaner_test

import data.gleaner

web := {"zone": "example.com", "name": "web", "type": "A"}

# about is the verdict about a record once this has come of the intents.
about(spec, results) := v if {
	v := gleaner.finalize with input as {"object": {"spec": spec}, "results": results, "withheld": []}
}

removed(status) := {"remove": {"http": {"status": 204}}, "look": {"http": {"status": status}}}

test_the_record_is_removed_where_it_is if {
	about(web, {}).intents == [{
		"id": "remove",
		"http": {"method": "DELETE", "url": "https://dns.example.com/zones/example.com/records/A/web"},
	}]
}

test_the_server_is_a_setting if {
	verdict := gleaner.finalize with input as {
		"object": {"spec": web},
		"policy": {"settings": {"url": "http://127.0.0.1:8053"}},
		"results": {},
	}
	startswith(verdict.intents[0].http.url, "http://127.0.0.1:8053/zones/")
}

test_the_object_goes_when_the_record_is_gone if {
	about(web, removed(404)).decision == "Done"
	about(web, object.union(removed(404), {"remove": {"http": {"status": 404}}})).decision == "Done"
	about(web, removed(200)).decision == "Wait"
}

test_a_server_that_is_down_is_waited_for if {
	about(web, {"remove": {"http": {"status": 503}}}).decision == "Wait"
	about(web, {"remove": {"error": {"reason": "Unavailable", "message": "nobody answers"}}}).decision == "Wait"
	about(web, {"remove": {"http": {"status": 401}}}).decision == "Fail"
}

test_a_name_means_no_other_path if {
	every name in ["", "..", "a/b", "a..b", ".a", "a?b", "a%2fb", "a."] {
		about(object.union(web, {"name": name}), {}).decision == "Fail"
	}
	about({"zone": "example.com"}, {}).decision == "Fail"
	about(object.union(web, {"name": "_dmarc.web-1"}), {}).decision == "Act"
}

test_an_object_that_is_withheld_needs_a_human if {
	verdict := gleaner.finalize with input as {"object": {}, "withheld": ["object"], "results": {}}
	verdict.decision == "Fail"
}

test_settings_are_checked if {
	gleaner.validate.decision == "Valid" with input.policy.settings as {"url": "https://dns.example.com"}
	gleaner.validate.decision == "Invalid" with input.policy.settings as {"server": "dns.example.com"}
}
