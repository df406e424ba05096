package finalize

import (
	"hash/fnv"
	"strconv"
	"strings"
	"unicode/utf8"
)

// identifier makes an intent's ID of any text. What can be one stays as it is.
func identifier(text string) string {
	const most, kept = 63, 40
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, text)
	if clean == text && text != "" && len(text) <= most {
		return text
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(text)) // never fails
	return clean[:min(len(clean), kept)] + "-" + strconv.FormatUint(hash.Sum64(), 16)
}

// shortened cuts a text down to so many bytes, and shows that it did.
func shortened(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	const mark = "…"
	cut := most - len(mark)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}
