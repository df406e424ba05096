package archive

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
	"filippo.io/age/agessh"
	"golang.org/x/crypto/ssh"
)

// MaxRecipients is the maximum number of recipients of a body. Each adds about 200 bytes to it,
// and a post-quantum one 2 KiB.
const MaxRecipients = 20

const maxKeys = 1000 // in a file of identities

// ParseRecipients reads age recipients, one a line: age1…, or the public key of an SSH key pair.
// Empty lines, and those that begin with #, are ignored. The error names the line, and contains
// nothing of it.
func ParseRecipients(text string) ([]age.Recipient, error) {
	var recipients []age.Recipient
	err := eachLine(text, func(line string) error {
		if len(recipients) == MaxRecipients {
			return fmt.Errorf("more than %d recipients", MaxRecipients)
		}
		r, err := parseRecipient(line)
		recipients = append(recipients, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("parse recipients: %w", err)
	}
	if len(recipients) == 0 {
		return nil, nil
	}
	if _, err := age.Encrypt(io.Discard, recipients...); err != nil { // some cannot be combined
		return nil, fmt.Errorf("parse recipients: %w: use only post-quantum recipients (age1pq1…), or none", err)
	}
	return recipients, nil
}

func parseRecipient(line string) (age.Recipient, error) {
	var r age.Recipient
	var err error
	switch {
	case strings.HasPrefix(strings.ToUpper(line), "AGE-SECRET-KEY-"):
		return nil, errors.New("this is an identity, which is secret: write its recipient (age1…), which age-keygen -y prints")
	case strings.HasPrefix(line, "age1pq1"):
		r, err = age.ParseHybridRecipient(line)
	case strings.HasPrefix(line, "age1"):
		r, err = age.ParseX25519Recipient(line)
	case strings.HasPrefix(line, "ssh-ed25519 "), strings.HasPrefix(line, "ssh-rsa "):
		r, err = agessh.ParseRecipient(line)
	default:
		return nil, errors.New("not a recipient: write an age recipient (age1…, from age-keygen) or an SSH public key (ssh-ed25519 …)")
	}
	if err != nil { // whose text may contain the line
		return nil, errors.New("recipient is invalid: copy it again from the output of age-keygen, or from the .pub file of the SSH key")
	}
	return r, nil
}

// ParseIdentities reads the file of an administrator: age identities, one a line, with comments
// that begin with #; or one SSH private key without a passphrase. The error names the line, and
// contains nothing of it.
func ParseIdentities(text string) ([]age.Identity, error) {
	trimmed := strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(trimmed, "-----BEGIN AGE ENCRYPTED FILE"), strings.HasPrefix(trimmed, "age-encryption.org/"):
		return nil, errors.New("parse identities: the file is encrypted itself: decrypt it with age -d")
	case strings.HasPrefix(trimmed, "-----BEGIN "):
		return parseSSHIdentity([]byte(text))
	}
	var identities []age.Identity
	err := eachLine(text, func(line string) error {
		if len(identities) == maxKeys {
			return fmt.Errorf("more than %d identities", maxKeys)
		}
		i, err := parseIdentity(line)
		identities = append(identities, i)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("parse identities: %w", err)
	}
	if len(identities) == 0 {
		return nil, errors.New("parse identities: there is none: write a file with AGE-SECRET-KEY-1…, from age-keygen")
	}
	return identities, nil
}

func parseIdentity(line string) (age.Identity, error) {
	var i age.Identity
	var err error
	switch {
	case strings.HasPrefix(line, "AGE-SECRET-KEY-PQ-1"):
		i, err = age.ParseHybridIdentity(line)
	case strings.HasPrefix(line, "AGE-SECRET-KEY-1"):
		i, err = age.ParseX25519Identity(line)
	case strings.HasPrefix(line, "age1"), strings.HasPrefix(line, "ssh-"):
		return nil, errors.New("this is a recipient, which cannot decrypt: write the identity (AGE-SECRET-KEY-1…), or name the SSH private key's file")
	default:
		return nil, errors.New("not an identity: write AGE-SECRET-KEY-1…, from age-keygen, or name an SSH private key's file")
	}
	if err != nil { // whose text may contain the line
		return nil, errors.New("identity is invalid: copy it again from the file that age-keygen wrote")
	}
	return i, nil
}

func parseSSHIdentity(pem []byte) ([]age.Identity, error) {
	i, err := agessh.ParseIdentity(pem)
	var passphrase *ssh.PassphraseMissingError
	if errors.As(err, &passphrase) {
		return nil, errors.New("parse identities: the SSH key has a passphrase: remove it from a copy with ssh-keygen -p")
	}
	if err != nil {
		return nil, errors.New("parse identities: not an SSH private key of type ed25519 or RSA")
	}
	return []age.Identity{i}, nil
}

// eachLine calls parse for lines with content, and adds the number of the line to its error.
func eachLine(text string, parse func(line string) error) error {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := parse(line); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	return nil
}
