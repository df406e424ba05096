package confine

import (
	"os"
	"strconv"
	"syscall"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// Attributes are how a worker is started: it ends with the thread that starts it and, with
// namespaces, has a network of its own, which leads nowhere. It stays in the namespace of
// processes, since Landlock could not be applied to all of its threads from within another.
func Attributes(namespaces bool) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if namespaces {
		const unprivileged = 65534
		attributes.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: unprivileged, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: unprivileged, HostID: os.Getgid(), Size: 1}}
	}
	return attributes
}

// Apply restricts this process for good, and reports which restrictions are active.
func Apply(o Options) []string {
	var active []string
	setNice(o.Nice)
	if setLimits() == nil {
		active = append(active, Limits)
	}
	files := restrictFiles(o.CacheDir)
	if files {
		active = append(active, Landlock)
	}
	// Without Landlock, no file can be opened at all: a filter of system calls sees no paths.
	if restrictCalls(files && o.CacheDir != "") == nil {
		active = append(active, Seccomp)
	}
	return active
}

// setNice lowers the priority of all threads, from which later ones inherit it.
func setNice(nice int) {
	if nice <= 0 {
		return
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, nice) // a matter of speed
		}
	}
}

// Limits of the process. Resident memory and the time of each call are the operator's to
// bound: it can see them, and a limit of the address space counts what Go only reserves.
const (
	maxAddressSpace = 32 << 30
	maxFileSize     = 1 << 30 // also of a file in memory
	maxFiles        = 4096
	maxCPUSeconds   = 2 * 60 * 60 // of the whole life of a worker: one that its operator has lost ends
)

func setLimits() error {
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_AS: maxAddressSpace, unix.RLIMIT_FSIZE: maxFileSize, unix.RLIMIT_NOFILE: maxFiles,
		unix.RLIMIT_CPU: maxCPUSeconds, unix.RLIMIT_CORE: 0,
	} {
		var now unix.Rlimit
		if err := unix.Getrlimit(resource, &now); err != nil {
			return err
		}
		limit = min(limit, now.Max)
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	return nil
}

// restrictFiles leaves nothing of the file system but the cache folder, and reports
// whether the kernel enforces that. Where it knows how, it forbids network and signals too.
func restrictFiles(cacheDir string) bool {
	version, err := landlockVersion()
	if err != nil || version < 1 {
		return false
	}
	var rules []landlock.Rule
	if cacheDir != "" {
		rules = append(rules, landlock.RWDirs(cacheDir))
	}
	return landlock.V6.BestEffort().Restrict(rules...) == nil
}

func landlockVersion() (int, error) {
	const askVersion = 1
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, askVersion)
	if errno != 0 {
		return 0, errno
	}
	return int(version), nil
}

// calls are the system calls that the Go runtime and the sandbox of WebAssembly need. A
// name that an architecture does not have is left out.
var calls = []string{
	"read", "write", "readv", "writev", "pread64", "pwrite64", "close", "fcntl", "fstat", "newfstatat", "lseek", "dup3",
	"mmap", "munmap", "mprotect", "madvise", "mremap", "mincore", "brk", "memfd_create", "ftruncate",
	"futex", "sched_yield", "sched_getaffinity", "nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday",
	"epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "eventfd2", "pipe2", "poll", "ppoll",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "tgkill", "restart_syscall", "rseq", "set_robust_list", "membarrier",
	"getpid", "gettid", "getrandom", "getrusage", "exit", "exit_group", "timer_create", "timer_settime", "timer_delete", "setitimer",
}

// cacheCalls are those that the cache folder needs, where Landlock says which files.
var cacheCalls = []string{
	"openat", "mkdirat", "unlinkat", "unlink", "rmdir", "rename", "renameat", "renameat2", "getdents64", "fsync", "fchmod", "fchmodat", "utimensat", "readlinkat",
	"lstat", "stat", "mkdir", "open",
}

// restrictCalls denies every other system call, with an error that says so.
func restrictCalls(files bool) error {
	info, err := arch.GetInfo("")
	if err != nil {
		return err
	}
	wanted := append(calls[:len(calls):len(calls)], threadCalls...)
	if files {
		wanted = append(wanted, cacheCalls...)
	}
	var known []string
	for _, name := range wanted {
		if _, ok := info.SyscallNames[name]; ok {
			known = append(known, name)
		}
	}
	return seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true,
		Flag:       seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionErrno, // EPERM
			Syscalls: []seccomp.SyscallGroup{{
				Names: known,
				// A new thread, but no new process.
				NamesWithCondtions: []seccomp.NameWithConditions{{
					Name:       "clone",
					Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.BitsSet, Value: unix.CLONE_THREAD}},
				}},
				Action: seccomp.ActionAllow,
			}},
		},
	})
}
