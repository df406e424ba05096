package hostabi

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

const (
	// MaxDuration is the maximum of every duration in a verdict.
	MaxDuration = Duration(720 * time.Hour)

	// MinWait is the minimum time between two evaluations, even if the after or
	// delay of a verdict is shorter.
	MinWait = Duration(time.Second)

	// DefaultWait is the duration of a Wait without after.
	DefaultWait = Duration(30 * time.Second)
)

// Duration is a length of time. In documents it is a Go duration string such as
// "1h30m". Zero means that it is not set; it is omitted.
type Duration time.Duration

// ParseDuration parses a duration of a verdict: greater than 0, and at most
// MaxDuration.
func ParseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s is not a duration: write one such as \"90s\" or \"1h30m\"", quote(s))
	case d <= 0 || Duration(d) > MaxDuration:
		return 0, fmt.Errorf("%s is out of range: write a duration greater than 0 and at most 720h", quote(s))
	}
	return Duration(d), nil
}

// String formats the duration as time.Duration does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return strconv.AppendQuote(nil, d.String()), nil }

// UnmarshalJSON implements json.Unmarshaler, with the checks of ParseDuration.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("decode duration: %w", err)
	}
	parsed, err := ParseDuration(s)
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}
