# Package clock computes with the time of the request, the only clock of a policy.
# Times are RFC 3339, durations are like "1h30m", "7d" or "2w".
package gleaner.sdk.clock

# now is the time of the request, in nanoseconds since 1970.
now := time.parse_rfc3339_ns(input.time)

# since is the time that has passed since a timestamp, in nanoseconds; negative if
# it is in the future.
since(timestamp) := now - time.parse_rfc3339_ns(timestamp)

# elapsed: a duration has passed since a timestamp. It is undefined if the
# timestamp is missing or invalid.
elapsed(timestamp, duration) if since(timestamp) >= time.parse_duration_ns(duration)

# older_than: the object was created at least this long ago.
older_than(duration) if elapsed(input.object.metadata.creationTimestamp, duration)

# without_owners_for: the object has had no owner for at least this long.
without_owners_for(duration) if elapsed(input.ownersAbsentSince, duration)

# remaining is the rest of a duration since a timestamp, as a duration in whole
# seconds for wait_for. It is undefined if nothing remains.
remaining(timestamp, duration) := sprintf("%ds", [seconds]) if {
	rest := time.parse_duration_ns(duration) - since(timestamp)
	rest > 0
	seconds := ceil(rest / 1000000000)
}
