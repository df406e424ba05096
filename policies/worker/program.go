//go:build !race

package worker

func testProgram() string { return "" }
