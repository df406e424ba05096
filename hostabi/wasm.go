package hostabi

// Names of the WebAssembly ABI, version 1. A module exports one function for each
// hook that it implements, with the name of the hook and the type () → ().
const (
	// ImportModule is the module name of the host's functions.
	ImportModule = "gleaner_v1"

	// ImportRequestRead (ptr, limit i32) → length i32 writes the request to memory
	// and returns its length. If the length exceeds the limit, nothing is written,
	// and the module calls it again with a larger buffer.
	ImportRequestRead = "request_read"

	// ImportVerdictWrite (ptr, length i32) passes the verdict to the host, once per
	// call.
	ImportVerdictWrite = "verdict_write"

	// ImportLog (level, ptr, length i32) writes a line to the module's log.
	ImportLog = "log"

	// ExportNeedsMetadata and ExportNeedsReference are functions () → () that a module may
	// export, and that are never called: it reads only the metadata of objects, or
	// only what identifies them. It does not get more, whatever the needs of a policy are.
	ExportNeedsMetadata  = "needs_metadata"
	ExportNeedsReference = "needs_reference"
)

// LogLevel is the level of a log line of a module.
type LogLevel uint32

// The levels. Any other number is treated as LogError.
const (
	LogDebug LogLevel = iota
	LogInfo
	LogWarn
	LogError
)

// String returns the name of the level.
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

// SettingsSection is the name of the custom section of a WebAssembly module that contains the JSON Schema of
// its settings. A module with one has the hook validate, which rejects settings that do not match, and then calls
// the module's own validate if there is one.
const SettingsSection = "gleaner.settings"
