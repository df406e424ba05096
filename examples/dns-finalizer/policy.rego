# The DNS record of an object is deleted through a REST API before the object is
# deleted.
package gleaner

import data.gleaner.sdk.settings
import data.gleaner.sdk.steps
import data.gleaner.sdk.verdict

finalize := verdict.fail("it cannot be read: allow the finalizer's service account to get it") if {
	"object" in input.withheld
}

else := verdict.fail("its spec does not name a record: zone, name and type") if {
	not is_record
}

else := steps.sequence([
	steps.call("remove", {"method": "DELETE", "url": url}),
	steps.call("look", {"method": "GET", "url": url}),
	steps.until(steps.is_gone("look"), "10s", "the record still exists"),
])

validate := settings.validate({"url": "text"})

url := sprintf("%s/zones/%s/records/%s/%s", [
	settings.get("url", "https://dns.example.com"),
	record.zone,
	record.type,
	record.name,
])

record := input.object.spec

# is_record rejects names that would change the path.
is_record if {
	every part in [record.zone, record.name, record.type] {
		regex.match(`^[A-Za-z0-9_]([A-Za-z0-9_-]|\.[A-Za-z0-9_-])*$`, part)
	}
}
