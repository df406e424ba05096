package finalize

import (
	"hash/fnv"
	"strconv"
	"strings"
	"unicode/utf8"
)

// identifier returns an intent ID for any text. A valid ID is unchanged.
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

// truncate truncates a text to most bytes, with an ellipsis.
func truncate(text string, most int) string {
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
