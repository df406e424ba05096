// Package examples runs the examples as their READMEs say: their own tests, and
// on a real control plane.
package examples
