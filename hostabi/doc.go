// Package hostabi holds the documents that a policy is asked with and answers
// with, and their names: what crosses the wall between the collector and
// whatever decides. It has no dependencies, so that it fits into a module's
// sandbox as well.
package hostabi

// Version is the apiVersion of every document.
const Version = "abi.gleaner.dev/v1"
