package hostabi

// Names of the WebAssembly ABI, version 1. A module exports one function for
// each hook that it answers, of the hook's name and of type () → ().
const (
	// ImportModule is where a module imports the host's functions from.
	ImportModule = "gleaner_v1"

	// ImportRequestRead (ptr, limit i32) → length i32 writes the request to
	// memory and gives its length. If that is above the limit, nothing is
	// written, and the module asks again with more room.
	ImportRequestRead = "request_read"

	// ImportVerdictWrite (ptr, length i32) gives the verdict, once in a call.
	ImportVerdictWrite = "verdict_write"

	// ImportLog (level, ptr, length i32) writes a line to the module's log.
	ImportLog = "log"
)

// LogLevel is how much a line of a module's log matters.
type LogLevel uint32

// The levels. Any other number is taken for LogError.
const (
	LogDebug LogLevel = iota
	LogInfo
	LogWarn
	LogError
)

// String names the level.
func (l LogLevel) String() string {
	switch l {
	case LogDebug:
		return "debug"
	case LogInfo:
		return "info"
	case LogWarn:
		return "warn"
	default:
		return "error"
	}
}
