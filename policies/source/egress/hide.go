package egress

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
)

// Unreached is a host name at which nothing was asked: it has no address, or one
// that must not be reached. Which of these it is, Error does not say, since it
// would tell whoever may write a URL what the names of internal networks stand for.
type Unreached struct {
	Host   string
	Remedy string

	// Cause is what happened, with addresses. It is for the operator's log alone, and
	// not to be had by Unwrap.
	Cause error
}

// Error implements error.
func (u *Unreached) Error() string {
	return "the host " + u.Host + " is not found, or has no address that may be reached: check the name, or have it allowed: " + u.Remedy
}

// hide takes out of an error what the name of a host stands for. Of an address that
// the URL itself has in it, there is nothing to hide.
func hide(host, remedy string, err error) error {
	if _, bad := netip.ParseAddr(host); err == nil || bad == nil {
		return err
	}
	var (
		refusal    *Refusal
		unresolved *net.DNSError
		address    *net.AddrError
		unknown    *undetermined
	)
	if errors.As(err, &refusal) || errors.As(err, &unresolved) || errors.As(err, &address) || errors.As(err, &unknown) {
		return &Unreached{Host: host, Remedy: remedy, Cause: err}
	}
	return err
}

// Cause is the text of a network's error without addresses: neither that of who was
// asked, which names stand for, nor those of this machine and of what resolves its
// names. What does not come from the network is returned as it is.
func Cause(err error) string {
	var (
		unresolved *net.DNSError
		operation  *net.OpError
		address    *net.AddrError
		request    *url.Error
	)
	switch {
	case errors.As(err, &operation):
		return operation.Op + ": " + Cause(operation.Err)
	case errors.As(err, &unresolved):
		return "look up host: not found, or nobody could be asked"
	case errors.As(err, &address):
		return "address: " + address.Err
	case errors.As(err, &request):
		return Cause(request.Err)
	}
	return err.Error()
}
