// Package modes defines the modes of Gleaner, the values of --collector.
package modes

// The modes.
const (
	Primary   = "primary"   // Gleaner is the only garbage collector
	Companion = "companion" // Gleaner runs in addition to the built-in garbage collector
)
