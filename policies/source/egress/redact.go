package egress

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
)

// UnreachableHostError is a host that was not contacted: it has no address, or one that must
// not be reached. Error does not say which, since that would tell authors of URLs
// what the names of internal networks resolve to.
type UnreachableHostError struct {
	Host   string
	Remedy string

	// Cause is the actual error, with addresses. It is for the operator's log only,
	// and is not returned by Unwrap.
	Cause error
}

// Error implements error.
func (u *UnreachableHostError) Error() string {
	return "host " + u.Host + " was not found, or has no address that may be reached: check the name, or allow the address: " + u.Remedy
}

// redact removes from an error what a host name resolves to. An address that is in
// the URL itself is not hidden.
func redact(host, remedy string, err error) error {
	if _, bad := netip.ParseAddr(host); err == nil || bad == nil {
		return err
	}
	var (
		refusal    *DeniedError
		unresolved *net.DNSError
		address    *net.AddrError
		unknown    *undeterminedError
	)
	if errors.As(err, &refusal) || errors.As(err, &unresolved) || errors.As(err, &address) || errors.As(err, &unknown) {
		return &UnreachableHostError{Host: host, Remedy: remedy, Cause: err}
	}
	return err
}

// RedactAddresses returns the text of a network error without addresses: neither those that
// names resolve to, nor those of this machine and of its name servers. Other errors
// are returned unchanged.
func RedactAddresses(err error) string {
	var (
		unresolved *net.DNSError
		operation  *net.OpError
		address    *net.AddrError
		request    *url.Error
	)
	switch {
	case errors.As(err, &operation):
		return operation.Op + ": " + RedactAddresses(operation.Err)
	case errors.As(err, &unresolved):
		return "look up host: not found, or no name server could be reached"
	case errors.As(err, &address):
		return "address: " + address.Err
	case errors.As(err, &request):
		return RedactAddresses(request.Err)
	}
	return err.Error()
}
