package hostabi

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

const (
	// MaxDuration bounds every duration in a verdict.
	MaxDuration = Duration(720 * time.Hour)

	// MinWait is the least that passes until a question is put again, however short the
	// after or delay of a verdict is.
	MinWait = Duration(time.Second)

	// DefaultWait is how long a Wait without after lasts.
	DefaultWait = Duration(30 * time.Second)
)

// Duration is a length of time, in documents a Go duration string such as
// "1h30m". Zero is none, and is left out.
type Duration time.Duration

// ParseDuration reads a duration as a verdict may have it: above 0, and at most
// MaxDuration.
func ParseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s is no duration: write one such as \"90s\" or \"1h30m\"", quote(s))
	case d <= 0 || Duration(d) > MaxDuration:
		return 0, fmt.Errorf("%s is out of range: write a duration above 0 and of at most 720h", quote(s))
	}
	return Duration(d), nil
}

// String writes it as time.Duration does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return strconv.AppendQuote(nil, d.String()), nil }

// UnmarshalJSON implements json.Unmarshaler. It is as strict as ParseDuration.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read a duration: %w", err)
	}
	parsed, err := ParseDuration(s)
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}
