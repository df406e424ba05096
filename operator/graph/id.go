package graph

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/types"
)

// ID is an object's UID in 16 bytes: the key of the graph and of the work queue. API
// servers use RFC 4122 UUIDs as UIDs, whose bytes are the ID. An owner reference may
// contain any string; one that is not such a UUID is hashed into the part of the space
// that RFC 4122 leaves unused, so it never equals the ID of a real object.
type ID [16]byte

const (
	versionByte, variantByte = 6, 8
	textLength               = 36
)

// IDOf returns the ID of a UID. Every string has one.
func IDOf(uid types.UID) ID {
	if id, ok := parseUUID(string(uid)); ok {
		return id
	}
	sum := sha256.Sum256([]byte(uid))
	id := ID(sum[:16])
	id[versionByte] |= 0xf0 // version 15
	id[variantByte] |= 0xe0 // variant "reserved"
	return id
}

// Canonical reports whether the ID contains the UID itself, so that String returns the
// UID.
func (id ID) Canonical() bool {
	version := id[versionByte] >> 4
	return version >= 1 && version <= 8 && id[variantByte]&0xc0 == 0x80
}

// String returns the UUID text of the ID.
func (id ID) String() string {
	var text [textLength]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

func parseUUID(text string) (ID, bool) {
	var id ID
	if len(text) != textLength {
		return id, false
	}
	var digits [32]byte
	n := 0
	for i := range textLength {
		c := text[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return id, false
			}
			continue
		}
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return id, false
		}
		digits[n] = c
		n++
	}
	if _, err := hex.Decode(id[:], digits[:]); err != nil {
		return id, false
	}
	return id, id.Canonical()
}
