//go:build unix

package worker

import (
	"errors"
	"os"
	"syscall"
)

// socketPair returns two ends of a connection. Both block, which saves a round through
// the network poller for each call, ours for quickTime at most.
func socketPair() (own, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(pair[0])
		syscall.CloseOnExec(pair[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	timeout := syscall.NsecToTimeval(quickTime.Nanoseconds())
	for _, option := range []int{syscall.SO_RCVTIMEO, syscall.SO_SNDTIMEO} {
		if err := syscall.SetsockoptTimeval(pair[0], syscall.SOL_SOCKET, option, &timeout); err != nil {
			return nil, nil, errors.Join(os.NewSyscallError("setsockopt", err), syscall.Close(pair[0]), syscall.Close(pair[1]))
		}
	}
	return os.NewFile(uintptr(pair[0]), "worker"), os.NewFile(uintptr(pair[1]), "operator"), nil
}
