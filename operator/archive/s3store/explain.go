package s3store

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

// hints say what to check, by the code of an error.
var hints = map[string]string{
	"NoSuchBucket":                       "create the bucket, or correct its name in the location of the archive",
	"InvalidAccessKeyId":                 wrongCredentials,
	"SignatureDoesNotMatch":              wrongCredentials,
	"InvalidToken":                       wrongCredentials,
	"XAdminUserNotFound":                 wrongCredentials, // of versitygw
	"ExpiredToken":                       wrongCredentials,
	"AccessDenied":                       denied,
	"Forbidden":                          denied,
	"PermanentRedirect":                  wrongRegion,
	"AuthorizationHeaderMalformed":       wrongRegion,
	"IllegalLocationConstraintException": wrongRegion,
	"NotImplemented":                     "use storage that supports conditional writes (If-None-Match), which keep two writers apart",
	"QuotaExceeded":                      full,
	"XMinioStorageFull":                  full,
	"NoSpaceLeftOnDevice":                full,
}

const (
	wrongCredentials = "check the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the shared configuration, or the role of the service account"
	denied           = "allow these credentials s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject and s3:DeleteObject on what is in it"
	wrongRegion      = "set AWS_REGION to the region of the bucket"
	full             = "the storage is full: free space, raise the quota, or lower the maximum size of the archive"
)

// explain says what to check about an error of the storage.
func (b *bucket) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	where := fmt.Sprintf("%s in bucket %q", doing, b.name)
	code := codeOf(err)
	if code == "NoSuchKey" || code == "NotFound" || code == "" && statusOf(err) == http.StatusNotFound {
		return fmt.Errorf("%s: %w", where, archive.ErrNotFound)
	}
	if hint := hints[code]; hint != "" {
		return fmt.Errorf("%s: %w: %s", where, err, hint)
	}
	if hint := hintOf(err); hint != "" {
		return fmt.Errorf("%s: %w: %s", where, err, hint)
	}
	return fmt.Errorf("%s: %w", where, err)
}

// hintOf returns what to check if there was no answer.
func hintOf(err error) string {
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var request *url.Error
	var network net.Error
	var canceled *aws.RequestCanceledError
	switch {
	case errors.Is(err, context.Canceled), errors.As(err, &canceled):
		return ""
	case errors.As(err, &authority), errors.As(err, &hostname):
		return "set AWS_CA_BUNDLE to the file of the certificate authority of the storage"
	case errors.As(err, &request), errors.As(err, &network):
		return "the storage cannot be reached: check AWS_ENDPOINT_URL_S3, DNS, proxies and network policies"
	case statusOf(err) == http.StatusForbidden:
		return denied
	case statusOf(err) == 0 && codeOf(err) == "":
		return wrongCredentials // they could not be found, and nothing was sent
	}
	return ""
}
