# Package clock reckons with the time of the request, which is the only clock a
# policy has. Times are RFC 3339, durations are as in "1h30m", "7d" or "2w".
package gleaner.sdk.clock

# now is the time of the request, in nanoseconds since 1970.
now := time.parse_rfc3339_ns(input.time)

# since is how long ago a time was, in nanoseconds; below 0 if it is to come.
since(timestamp) := now - time.parse_rfc3339_ns(timestamp)

# past: a duration has gone by since a time. A time that is missing or can't be
# read is not past.
past(timestamp, duration) if since(timestamp) >= time.parse_duration_ns(duration)

# older_than: the object was created that long ago.
older_than(duration) if past(input.object.metadata.creationTimestamp, duration)

# ownerless_for: the object has had no owner for that long.
ownerless_for(duration) if past(input.ownerlessSince, duration)

# left is how much of a duration is left since a time, as a duration in whole
# seconds that can be waited for. It is undefined once nothing is left.
left(timestamp, duration) := sprintf("%ds", [seconds]) if {
	rest := time.parse_duration_ns(duration) - since(timestamp)
	rest > 0
	seconds := ceil(rest / 1000000000)
}
