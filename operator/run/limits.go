package run

import "github.com/gleaner-dev/gleaner/operator/writelimit"

// limits bound what policies and finalizers have written: each of them, and all of them
// about the objects of one namespace. What is written once for each object, such as the
// removal of a finalizer, doesn't count.
type limits struct {
	states  *writelimit.Limiter // states of modules
	effects *writelimit.Limiter // creates, deletes, patches, and HTTP requests that change something
	events  *writelimit.Limiter // events that modules request
	reports *writelimit.Limiter // log lines and events about decisions that write nothing else
}

func newLimits() limits {
	return limits{
		states:  writelimit.New(writelimit.Rate{PerSecond: 20, Burst: 200}, writelimit.Rate{PerSecond: 10, Burst: 100}),
		effects: writelimit.New(writelimit.Rate{PerSecond: 200, Burst: 2000}, writelimit.Rate{PerSecond: 50, Burst: 1000}),
		events:  writelimit.New(writelimit.Rate{PerSecond: 5, Burst: 50}, writelimit.Rate{PerSecond: 5, Burst: 50}),
		reports: writelimit.New(writelimit.Rate{PerSecond: 20, Burst: 500}, writelimit.Rate{PerSecond: 20, Burst: 500}),
	}
}
