// Package exit defines errors with exit codes.
package exit

import "fmt"

// Exit codes of all commands.
const (
	CodeFailure = 1 // an error
	CodeUsage   = 2 // an invalid command line
)

// Error is an error with an exit code. If Err is nil, no message is printed.
type Error struct {
	Code int
	Err  error
}

// Error implements error.
func (e Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the underlying error, if any.
func (e Error) Unwrap() error { return e.Err }

// Usagef returns an error for an invalid command line.
func Usagef(format string, args ...any) error { return Error{CodeUsage, fmt.Errorf(format, args...)} }

// AsUsage returns err as the error of an invalid command line.
func AsUsage(err error) error { return Error{CodeUsage, err} }
