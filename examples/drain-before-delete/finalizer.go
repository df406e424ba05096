package main

import (
	"strconv"
	"strings"
	"time"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/finalize"
)

const (
	// maxStages keeps an attempt within its rounds: a stage takes up to three.
	maxStages = 5

	// maxLabel is the maximum length of a label value.
	maxLabel = 63

	every = 2 * time.Second // interval of checks for users that are being deleted
)

// settings are the settings of the finalizer.
type settings struct {
	Users struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	} `json:"users"`
	Label      string   `json:"label"`      // label of a user with the name of the object that it uses
	StageLabel string   `json:"stageLabel"` // label of a user with its stage
	Stages     []string `json:"stages"`     // in this order; users in no stage come last
}

// finalizer lists the users each time: what is left to do is what is left of them.
func finalizer(r gleaner.Request) (gleaner.Verdict, error) {
	return finalize.Run(r, func(s *finalize.Steps) {
		set, problem := settingsOf(r)
		if problem != "" {
			s.Fail(problem)
		}
		name := r.Object.Metadata.Name
		if len(name) > maxLabel {
			s.Fail("its name is longer than a label value, so no label can refer to it")
		}
		for i, stage := range set.Stages {
			drain(s, "stage"+strconv.Itoa(i+1), "stage "+stage, set.list(r, set.Label+"="+name+","+set.StageLabel+"="+stage))
		}
		drain(s, "rest", "the rest", set.list(r, set.Label+"="+name))
	})
}

// drain deletes a stage's users with their dependents, and waits until they are
// gone. That is checked separately, since a list over several attempts does not
// prove it.
func drain(s *finalize.Steps, id, stage string, users gleaner.ListIntent) {
	s.Each(id, users, func(user gleaner.Object) {
		if user.Metadata.DeletionTimestamp != nil {
			return // being deleted
		}
		s.DeleteWith("delete", gleaner.DeleteIntent{
			Target: finalize.TargetOf(user), UID: user.Metadata.UID, Propagation: gleaner.PropagationForeground,
		})
	})
	users.Limit = 1
	left := s.List(id+".left", users)
	if len(left.Items) != 0 {
		s.Wait(every, stage+": "+left.Items[0].Kind+" "+left.Items[0].Metadata.Name+" still exists")
	}
}

// list returns users in the object's namespace.
func (set settings) list(r gleaner.Request, selector string) gleaner.ListIntent {
	return gleaner.ListIntent{
		APIVersion: set.Users.APIVersion, Kind: set.Users.Kind, Namespace: r.Object.Metadata.Namespace, LabelSelector: selector,
	}
}

// problem returns what is wrong with settings, and what to write instead.
func (set settings) problem() string {
	switch {
	case set.Users.APIVersion == "" || set.Users.Kind == "":
		return "users must be a kind, such as {apiVersion: apps/v1, kind: Deployment}"
	case !isLabel(set.Label):
		return "label must be the name of a label, such as example.com/uses"
	case len(set.Stages) != 0 && !isLabel(set.StageLabel):
		return "stageLabel must be the name of a label, such as example.com/stage, if there are stages"
	case len(set.Stages) > maxStages:
		return "stages must have at most " + strconv.Itoa(maxStages) + " stages"
	}
	for _, stage := range set.Stages {
		if stage == "" || strings.ContainsAny(stage, ",=!() ") {
			return "stages must be label values, such as frontend"
		}
	}
	return ""
}

// isLabel rejects names that would change the selector.
func isLabel(name string) bool { return name != "" && !strings.ContainsAny(name, ",=!() ") }

// settingsOf decodes the settings, and returns what is wrong with them.
func settingsOf(r gleaner.Request) (set settings, problem string) {
	if err := r.DecodeSettings(&set); err != nil {
		return set, err.Error()
	}
	return set, set.problem()
}

// validate rejects invalid settings.
func validate(r gleaner.Request) (gleaner.Verdict, error) {
	if _, problem := settingsOf(r); problem != "" {
		return gleaner.Verdict{Decision: gleaner.Invalid, Reason: problem}, nil
	}
	return gleaner.Verdict{Decision: gleaner.Valid}, nil
}
