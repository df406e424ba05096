package modulestore

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// Policies that pin a digest keep the module while its source is changed. They don't keep it
// when other signers are trusted, until one of those was seen to have signed it.
func TestStore_OtherTrustedSignersMeanThatTheModuleIsNotUsedUntilItIsVerified(t *testing.T) {
	f := newFake()
	down := false
	f.fetch = func(_ context.Context, r Resource) (string, error) {
		if down {
			return "", &source.Error{Reason: source.Unreachable, Message: "down", Temporary: true}
		}
		return "content", nil
	}
	runStore(t, f, func(t *testing.T, s *Store) {
		m := remoteModule("", "m")
		s.SetModules([]Resource{m})
		synctest.Wait()
		digest := wantPhase(t, s, m, Ready).Module.Digest
		down = true

		m.Spec.SHA256 = digest
		s.SetModules([]Resource{m})
		synctest.Wait()
		if state, _ := s.Get(m.Ref, digest); state.Phase != Ready {
			t.Errorf("after another change of the source it is %q, want Ready: its digest is pinned", state.Phase)
		}

		m.Spec.Verify = &v1alpha1.SignatureVerification{Signers: []v1alpha1.Signer{{PublicKey: "key"}}}
		s.SetModules([]Resource{m})
		synctest.Wait()
		if state, _ := s.Get(m.Ref, digest); state.Phase == Ready {
			t.Error("it is used although no trusted signer was seen to have signed it")
		}
	})
}

func TestStore_OtherTrustedSignersCountForATerminatingModuleToo(t *testing.T) {
	f := newFake()
	down := false
	f.fetch = func(context.Context, Resource) (string, error) {
		if down {
			return "", &source.Error{Reason: source.Unreachable, Message: "down", Temporary: true}
		}
		return "content", nil
	}
	runStore(t, f, func(t *testing.T, s *Store) {
		m := remoteModule("", "m")
		s.SetModules([]Resource{m})
		synctest.Wait()
		digest := wantPhase(t, s, m, Ready).Module.Digest
		down = true
		m.Terminating = true
		m.Spec.Verify = &v1alpha1.SignatureVerification{Signers: []v1alpha1.Signer{{PublicKey: "key"}}}
		s.SetModules([]Resource{m})
		synctest.Wait()
		if state, _ := s.Get(m.Ref, digest); state.Phase == Ready {
			t.Error("it is used although no trusted signer was seen to have signed it")
		}
	})
}

func TestStore_PublishesTheSigners(t *testing.T) {
	f := newFake()
	f.signers = []string{"public key a"}
	runStore(t, f, func(t *testing.T, s *Store) {
		m := remoteModule("", "m")
		s.SetModules([]Resource{m})
		synctest.Wait()
		state := wantPhase(t, s, m, Ready)
		pinned, _ := s.Get(m.Ref, state.Module.Digest)
		for _, got := range [][]string{state.Module.Signers, pinned.Module.Signers} {
			if len(got) != 1 || got[0] != "public key a" {
				t.Errorf("the signers are %q", got)
			}
		}
	})
}
