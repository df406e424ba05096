// Package validation rejects resources of gleaner.dev that can't work at the moment they are applied: what their
// status would report later. A validating webhook calls it.
//
// Status remains authoritative: what can't be checked in time, or depends on what is applied later, is allowed.
package validation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gleaner-dev/gleaner/crds/resources"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// Modules loads and evaluates modules; a *modulestore.Store. What it does takes place in worker processes with
// limits.
type Modules interface {
	Get(ref modulestore.Ref, digest string) (modulestore.State, bool)
	Try(ctx context.Context, r modulestore.Resource) error
	TryUse(ctx context.Context, u modulestore.Use) modulestore.UseState
}

// Options configure a Validator. All fields are required.
type Options struct {
	Builder *policyset.Builder
	Current func() *policyset.Snapshot // nil until the resources were read once
	Modules Modules
	// CheckSigners reports invalid signers of a module.
	CheckSigners func(modulestore.Resource) error
}

// Validator validates resources. Create it with New. Its methods may be called concurrently.
type Validator struct{ options Options }

// New returns a Validator.
func New(o Options) *Validator { return &Validator{o} }

// Result is what is known of a resource. The zero Result is one that was not checked.
type Result struct {
	// Problem is what is wrong with it, and what to write instead. Empty: nothing is known to be wrong.
	Problem string
	// Checked reports whether everything was checked that can be checked before it is applied.
	Checked bool
}

// Validate validates a resource of one of the kinds of package resources.
func (v *Validator) Validate(ctx context.Context, kind string, o runtime.Object) (Result, error) {
	all, err := resources.Read(func(of string, into resources.List) error {
		if of != kind {
			return nil
		}
		return meta.SetList(into, []runtime.Object{o})
	})
	if err != nil {
		return Result{}, fmt.Errorf("read %s: %w", kind, err)
	}
	r := policyset.Resources{Resources: all}
	if len(r.Modules) != 0 {
		return v.module(ctx, r.ModuleSources()[0]), nil
	}
	if s := v.options.Current(); s != nil {
		for _, m := range s.Modules {
			r.Modules = append(r.Modules, resources.Module{Object: m.Object, Kind: m.Kind, Spec: m.Spec})
		}
	}
	states := &states{ctx: ctx, modules: v.options.Modules}
	s := v.options.Builder.Build(r, states)
	return Result{Problem: problemOf(s), Checked: !states.unknown.Load()}, nil
}

// module checks the signers of a module, and compiles it if it is inline.
func (v *Validator) module(ctx context.Context, r modulestore.Resource) Result {
	if err := v.options.CheckSigners(r); err != nil {
		return Result{Problem: "spec.verify: " + err.Error(), Checked: true}
	}
	err := v.options.Modules.Try(ctx, r)
	fault, invalid := (*source.Error)(nil), (*modulestore.CompileError)(nil)
	switch {
	case err == nil:
		return Result{Checked: true}
	case errors.As(err, &fault) && !fault.Temporary:
		return Result{Problem: fault.Message, Checked: true}
	case errors.As(err, &invalid) && !invalid.Temporary:
		return Result{Problem: "it does not compile: " + invalid.Message, Checked: true}
	}
	return Result{}
}

// states are the states of modules that are loaded. Nothing new is loaded or kept.
type states struct {
	ctx     context.Context
	modules Modules
	unknown atomic.Bool // whether settings are valid
}

// Module implements policyset.ModuleStates.
func (s *states) Module(ref modulestore.Ref, digest string) (modulestore.State, bool) {
	return s.modules.Get(ref, digest)
}

// Use implements policyset.ModuleStates.
func (s *states) Use(u modulestore.Use) modulestore.UseState {
	state := s.modules.TryUse(s.ctx, u)
	if settings := (*modulestore.SettingsError)(nil); state.Phase != modulestore.Ready && !errors.As(state.Err, &settings) {
		s.unknown.Store(true)
	}
	return state
}

// problemOf returns the problem of the only resource in a snapshot, apart from modules, that its author has to solve
// in the resource itself. Others may be solved by what is applied later.
func problemOf(s *policyset.Snapshot) string {
	var d *policyset.Declaration
	switch {
	case len(s.Policies) != 0:
		d = &s.Policies[0].Declaration
	case len(s.Finalizers) != 0:
		d = &s.Finalizers[0].Declaration
	case len(s.Archives) != 0:
		d = &s.Archives[0].Declaration
	case len(s.Retentions) != 0:
		d = &s.Retentions[0].Declaration
	default:
		return ""
	}
	p := d.Problem
	if p.Condition == v1alpha1.ConditionAccepted || p.Reason == policyset.ReasonMissingHook {
		return strings.TrimSpace(p.Message)
	}
	return ""
}
