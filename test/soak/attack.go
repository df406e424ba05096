package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/test/attacks/payload"
)

const (
	attackerNamespace = "soak-attacker"
	attackLength      = 10 * time.Second // duration of each payload
	loadTime          = 2 * time.Second  // for the operator to load a module
)

// attacks are the payloads of package test/attacks that an attacker submits in turn.
// Payloads that only use memory are excluded, since growth is measured.
var attacks = []string{"endless-start", "endless-call", "nested-templates", "union-types", "rewritten-tables", "random-loads", "large-patterns"}

// attack attacks the operator as a tenant of one namespace, with one payload
// after the other, until the time is over. Others must not be affected.
func (s *testbed) attack(ctx, ending context.Context) error {
	if err := s.api.create(ctx, namespace(attackerNamespace)); err != nil {
		return err
	}
	for n := 0; ending.Err() == nil; n++ {
		p, ok := payload.Named(attacks[n%len(attacks)])
		if !ok {
			return fmt.Errorf("no payload %s", attacks[n%len(attacks)])
		}
		p.Name = fmt.Sprintf("%s-%d", p.Name, n)
		if err := s.submit(ctx, p); err != nil {
			return fmt.Errorf("attack with %s: %w", p.Name, err)
		}
		s.attacked.Add(1)
		pause(ctx, ending, attackLength)
		if err := s.removePayload(ctx, p); err != nil {
			return fmt.Errorf("remove %s: %w", p.Name, err)
		}
	}
	return nil
}

// submit creates the objects of a payload, with the highest limits that the API server
// accepts. Refused modules are skipped.
func (s *testbed) submit(ctx context.Context, p payload.Payload) error {
	p.Limits = p.Limits.Fit(func(l payload.Limits) bool {
		probe := payload.Payload{Name: p.Name, Rego: payload.Abstaining, Limits: l}
		objects, err := probe.Module(attackerNamespace)
		return err == nil && s.createAll(ctx, objects, client.DryRunAll) == nil
	})
	objects, err := p.Module(attackerNamespace)
	if err == nil {
		err = s.createAll(ctx, objects)
	}
	if apierrors.IsInvalid(err) {
		return nil
	}
	if err == nil {
		err = s.createAll(ctx, p.GCPolicies(attackerNamespace))
	}
	if err == nil {
		pause(ctx, ctx, loadTime) // otherwise the policies would not be evaluated yet
		err = s.createOrphans(ctx, p)
	}
	return err
}

// createAll creates objects. It returns the error of an invalid one immediately.
func (s *testbed) createAll(ctx context.Context, objects []*unstructured.Unstructured, options ...client.CreateOption) error {
	for _, o := range objects {
		var invalid error
		err := eventually(ctx, func() error {
			err := s.api.client.Create(ctx, o.DeepCopy(), options...)
			if apierrors.IsInvalid(err) {
				invalid, err = err, nil
			}
			if apierrors.IsAlreadyExists(err) {
				err = nil
			}
			return err
		})
		if err := errors.Join(invalid, err); err != nil {
			return err
		}
	}
	return nil
}

// createOrphans creates the objects for which a payload's policies are evaluated, and deletes
// their owner.
func (s *testbed) createOrphans(ctx context.Context, p payload.Payload) error {
	if p.Orphans == 0 {
		return nil
	}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: attackerNamespace, Name: p.Name + "-owner"}}
	if err := s.api.create(ctx, owner); err != nil {
		return err
	}
	for i := range p.Orphans {
		orphan := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: attackerNamespace, Name: fmt.Sprintf("%s-%d", p.Name, i), Labels: map[string]string{payload.Label: p.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
		}}
		if err := s.api.create(ctx, orphan); err != nil {
			return err
		}
	}
	return s.api.delete(ctx, owner, metav1.DeletePropagationBackground)
}

// removePayload deletes the objects of a payload. Its ownerless objects are left to the collector.
func (s *testbed) removePayload(ctx context.Context, p payload.Payload) error {
	objects, err := p.Module(attackerNamespace)
	if err != nil {
		return err
	}
	for _, o := range append(p.GCPolicies(attackerNamespace), objects...) {
		if err := eventually(ctx, func() error { return client.IgnoreNotFound(s.api.client.Delete(ctx, o)) }); err != nil {
			return err
		}
	}
	return nil
}
