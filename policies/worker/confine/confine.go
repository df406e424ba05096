// Package confine takes from a process all that it does not need: file system, network,
// other processes, most system calls, priority, and more than its share of resources. Its
// parent starts it without credentials, environment and open files.
//
// Each restriction is applied where the kernel offers it. What could be applied is
// reported, so that the operator can log it; what could not is made up for by the others
// and by the sandbox of WebAssembly itself.
package confine

// Options say what a process keeps.
type Options struct {
	// CacheDir is the one folder that the process may read and write; empty: none.
	CacheDir string

	// Nice is added to the priority of the process: 0 to 19, higher gives way to others.
	Nice int
}

// Restrictions that Apply and Namespaces report as active.
const (
	Limits     = "rlimits"    // resource limits
	Landlock   = "landlock"   // no file system but the cache folder, no network, no signals to others
	Seccomp    = "seccomp"    // only the system calls that a worker needs
	Namespaces = "namespaces" // users, network and IPC of its own
)
