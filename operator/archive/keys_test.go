package archive

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"strings"
	"testing"

	"filippo.io/age"
	"golang.org/x/crypto/ssh"
)

func sshKey(t *testing.T, passphrase string) (public, private string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sshPub, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(ssh.MarshalAuthorizedKey(sshPub)), string(pem.EncodeToMemory(block))
}

func TestParse_KeysOfEveryKindOpenWhatTheySealed(t *testing.T) {
	x, pq := identity(t), hybrid(t)
	public, private := sshKey(t, "")
	for name, c := range map[string]struct{ recipients, identities string }{
		"age":          {"# mine\n\n" + x.Recipient().String() + "\n", "# created: today\n" + x.String() + "\r\n"},
		"SSH":          {public, private},
		"age and SSH":  {x.Recipient().String() + "\n" + public, x.String()},
		"post-quantum": {pq.Recipient().String(), pq.String()},
	} {
		t.Run(name, func(t *testing.T) {
			recipients, err := ParseRecipients(c.recipients)
			if err != nil {
				t.Fatal(err)
			}
			identities, err := ParseIdentities(c.identities)
			if err != nil {
				t.Fatal(err)
			}
			e := seal(t, object("Secret", "s"), recipients...)
			if _, err := Open(e.Header, e.Body, identities...); err != nil {
				t.Error(err)
			}
		})
	}
}

func hybrid(t *testing.T) *age.HybridIdentity {
	t.Helper()
	pq, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return pq
}

func TestParseRecipients_SaysWhatToWriteInstead(t *testing.T) {
	x := identity(t)
	for name, c := range map[string]struct{ text, want string }{
		"an identity":         {"# a\n" + x.String(), "line 2: this is an identity, which is secret"},
		"a word":              {"\n\npassword", "line 3: not a recipient: write an age recipient (age1"},
		"a typing error":      {x.Recipient().String() + "x", "line 1: recipient is invalid: copy it again"},
		"a broken SSH key":    {"ssh-ed25519 AAAA", "line 1: recipient is invalid"},
		"too many":            {strings.Repeat(x.Recipient().String()+"\n", MaxRecipients+1), "line 21: more than 20 recipients"},
		"what does not mix":   {x.Recipient().String() + "\n" + hybrid(t).Recipient().String(), "use only post-quantum recipients"},
		"an elliptic SSH key": {"ecdsa-sha2-nistp256 AAAA", "line 1: not a recipient"},
	} {
		_, err := ParseRecipients(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	if r, err := ParseRecipients("# none\n"); r != nil || err != nil {
		t.Errorf("%v, %v, want none", r, err)
	}
}

func TestParseIdentities_SaysWhatToWriteInstead(t *testing.T) {
	x := identity(t)
	_, locked := sshKey(t, "secret")
	for name, c := range map[string]struct{ text, want string }{
		"a recipient":          {"# a\n" + x.Recipient().String(), "line 2: this is a recipient, which cannot decrypt"},
		"a passphrase":         {"password", "line 1: not an identity: write AGE-SECRET-KEY-1"},
		"a typing error":       {x.String() + "X", "line 1: identity is invalid: copy it again"},
		"nothing":              {"# none\n", "there is none"},
		"an encrypted file":    {"age-encryption.org/v1\n-> scrypt", "decrypt it with age -d"},
		"an armored one":       {"-----BEGIN AGE ENCRYPTED FILE-----\n", "decrypt it with age -d"},
		"a locked SSH key":     {locked, "remove it from a copy with ssh-keygen -p"},
		"another kind of file": {"-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n", "not an SSH private key"},
	} {
		_, err := ParseIdentities(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

func TestParse_ErrorsContainNoKey(t *testing.T) {
	secret := identity(t).String()
	for _, text := range []string{secret + "X", "X" + secret, strings.ToLower(secret), secret[:40]} {
		_, asRecipient := ParseRecipients(text)
		_, asIdentity := ParseIdentities(text)
		for _, err := range []error{asRecipient, asIdentity} {
			if err != nil && strings.Contains(strings.ToUpper(err.Error()), secret[20:30]) {
				t.Errorf("error contains the key: %v", err)
			}
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add("age1xyz\n# comment\nssh-ed25519 AAAA")
	f.Add("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n")
	f.Add("AGE-SECRET-KEY-1")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := ParseRecipients(text); err == nil && len(r) > MaxRecipients {
			t.Errorf("%d recipients", len(r))
		}
		if i, err := ParseIdentities(text); err == nil && len(i) == 0 {
			t.Error("no identity and no error")
		}
	})
}
