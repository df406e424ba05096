# Package settings reads what the policy's author left to those who use it.
package gleaner.sdk.settings

all := s if {
	s := input.policy.settings
	is_object(s)
} else := {}

# get is a setting, or what it is when it was not set.
get(name, otherwise) := object.get(all, name, otherwise)
