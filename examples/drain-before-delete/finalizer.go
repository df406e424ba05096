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

	// maxLabel is how long the value of a label may be.
	maxLabel = 63

	every = 2 * time.Second // between looks at users that are going
)

// settings are what users of the finalizer may set.
type settings struct {
	Users struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	} `json:"users"`
	Label      string   `json:"label"`      // on a user: the name of the object that it uses
	StageLabel string   `json:"stageLabel"` // on a user: its stage
	Stages     []string `json:"stages"`     // in this order; users of no stage among them come last
}

// finalizer finds the users anew each time: what is left to be done is who is left.
func finalizer(r gleaner.Request) (gleaner.Verdict, error) {
	return finalize.Run(r, func(s *finalize.Steps) {
		set, problem := settingsOf(r)
		if problem != "" {
			s.Fail(problem)
		}
		name := r.Object.Metadata.Name
		if len(name) > maxLabel {
			s.Fail("its name is longer than the value of a label may be: nobody can have named it as used")
		}
		for i, stage := range set.Stages {
			drain(s, "stage"+strconv.Itoa(i+1), "stage "+stage, set.list(r, set.Label+"="+name+","+set.StageLabel+"="+stage))
		}
		drain(s, "rest", "the rest", set.list(r, set.Label+"="+name))
	})
}

// drain deletes a stage's users, with all that is theirs, and waits until they are
// gone. That is asked apart: a list that takes several attempts does not show it.
func drain(s *finalize.Steps, id, stage string, users gleaner.ListIntent) {
	s.Each(id, users, func(user gleaner.Object) {
		if user.Metadata.DeletionTimestamp != nil {
			return // on its way
		}
		s.DeleteWith("delete", gleaner.DeleteIntent{
			Target: finalize.TargetOf(user), UID: user.Metadata.UID, Propagation: gleaner.PropagationForeground,
		})
	})
	users.Limit = 1
	left := s.List(id+".left", users)
	if len(left.Items) != 0 {
		s.Wait(every, stage+": "+left.Items[0].Kind+" "+left.Items[0].Metadata.Name+" is still there")
	}
}

// list finds users in the object's own namespace.
func (set settings) list(r gleaner.Request, selector string) gleaner.ListIntent {
	return gleaner.ListIntent{
		APIVersion: set.Users.APIVersion, Kind: set.Users.Kind, Namespace: r.Object.Metadata.Namespace, LabelSelector: selector,
	}
}

// problem is what is wrong with settings, and what to write instead.
func (set settings) problem() string {
	switch {
	case set.Users.APIVersion == "" || set.Users.Kind == "":
		return "users has to be a kind, such as {apiVersion: apps/v1, kind: Deployment}"
	case !isLabel(set.Label):
		return "label has to be the name of a label, such as example.com/uses"
	case len(set.Stages) != 0 && !isLabel(set.StageLabel):
		return "stageLabel has to be the name of a label, such as example.com/stage, where there are stages"
	case len(set.Stages) > maxStages:
		return "stages has to have at most " + strconv.Itoa(maxStages) + " stages"
	}
	for _, stage := range set.Stages {
		if stage == "" || strings.ContainsAny(stage, ",=!() ") {
			return "stages has to have values of a label, such as frontend"
		}
	}
	return ""
}

// isLabel keeps a name from meaning more in a selector.
func isLabel(name string) bool { return name != "" && !strings.ContainsAny(name, ",=!() ") }

// settingsOf reads the settings, and says what is wrong with them.
func settingsOf(r gleaner.Request) (set settings, problem string) {
	if err := r.DecodeSettings(&set); err != nil {
		return set, err.Error()
	}
	return set, set.problem()
}

// validate refuses settings that the finalizer could do nothing with.
func validate(r gleaner.Request) (gleaner.Verdict, error) {
	if _, problem := settingsOf(r); problem != "" {
		return gleaner.Verdict{Decision: gleaner.Invalid, Reason: problem}, nil
	}
	return gleaner.Verdict{Decision: gleaner.Valid}, nil
}
