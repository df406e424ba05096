package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

// Bounds of requests.
const (
	requestTimeout = 30 * time.Second // for one attempt
	connectTimeout = 5 * time.Second
	attempts       = 4
	maxBackoff     = 5 * time.Second
)

// A bucket is where the objects of one archive are.
type bucket struct {
	client *s3.Client
	name   string
	prefix string // empty, or ends in a slash

	transport *http.Transport // of the client
}

// close closes connections that are idle.
func (b *bucket) close() { b.transport.CloseIdleConnections() }

// object is what a list says of an object.
type object struct {
	key  string // after the prefix
	size int64
}

// errExists means that an object that was to be created exists.
var errExists = errors.New("object exists")

func openBucket(ctx context.Context, name, prefix string) (*bucket, error) {
	// The SDK's own client: it reads AWS_CA_BUNDLE.
	b := &bucket{name: name, prefix: prefix}
	client := awshttp.NewBuildableClient().WithTimeout(requestTimeout).WithDialerOptions(func(d *net.Dialer) { d.Timeout = connectTimeout })
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(client), config.WithRetryer(func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = attempts, maxBackoff })
	}))
	if err != nil {
		return nil, fmt.Errorf("load AWS configuration: %w", err)
	}
	custom := os.Getenv("AWS_ENDPOINT_URL_S3") != "" || os.Getenv("AWS_ENDPOINT_URL") != "" || aws.ToString(cfg.BaseEndpoint) != ""
	if cfg.Region == "" {
		if !custom {
			return nil, errors.New("no AWS region: set AWS_REGION to the region of the bucket")
		}
		cfg.Region = "us-east-1" // what other storage signs with, unless it is configured
	}
	if configured, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok { // with AWS_CA_BUNDLE
		client = configured
	}
	b.transport = client.GetTransport()
	cfg.HTTPClient = &http.Client{Transport: b.transport, Timeout: requestTimeout, CheckRedirect: onlyTemporary}
	b.client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = custom // other storage seldom has a DNS name for each bucket
		// Checksums that other storage does not know are left off: each part of a segment has its own.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	return b, nil
}

// onlyTemporary follows the redirects that keep method and body, as the SDK's own client does.
func onlyTemporary(r *http.Request, via []*http.Request) error {
	if code := r.Response.StatusCode; (code == http.StatusTemporaryRedirect || code == http.StatusPermanentRedirect) && len(via) < attempts {
		return nil
	}
	return http.ErrUseLastResponse
}

// create stores an object, unless one with this key exists: then the error is errExists. A retry
// after a lost response finds its own object, which the caller has to recognize.
func (b *bucket) create(ctx context.Context, key string, data []byte) error {
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.name, Key: aws.String(b.prefix + key), Body: bytes.NewReader(data), IfNoneMatch: aws.String("*"),
	})
	if code := codeOf(err); code == "PreconditionFailed" || code == "ConditionalRequestConflict" || statusOf(err) == http.StatusPreconditionFailed {
		return errExists
	}
	return b.explain("write", err)
}

// tail returns the end of an object, and the size of the whole object.
func (b *bucket) tail(ctx context.Context, key string, length int64) ([]byte, int64, error) {
	return b.get(ctx, key, fmt.Sprintf("bytes=-%d", length), length)
}

// slice returns a part of an object.
func (b *bucket) slice(ctx context.Context, key string, from, length int64) ([]byte, error) {
	if length == 0 {
		return nil, nil
	}
	data, _, err := b.get(ctx, key, fmt.Sprintf("bytes=%d-%d", from, from+length-1), length)
	if err == nil && int64(len(data)) != length {
		err = fmt.Errorf("read %s: %w: it has %d bytes at %d, not %d", key, archive.ErrCorrupt, len(data), from, length)
	}
	return data, err
}

func (b *bucket) get(ctx context.Context, key, byteRange string, maximum int64) ([]byte, int64, error) {
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: aws.String(b.prefix + key), Range: &byteRange})
	if err != nil {
		return nil, 0, b.explain("read "+key, err)
	}
	defer out.Body.Close()
	data, err := io.ReadAll(io.LimitReader(out.Body, maximum+1))
	if err != nil {
		return nil, 0, b.explain("read "+key, err)
	}
	if int64(len(data)) > maximum {
		return nil, 0, fmt.Errorf("read %s: the storage ignores the range of a request", key)
	}
	size := int64(len(data))
	if _, total, ok := strings.Cut(aws.ToString(out.ContentRange), "/"); ok {
		if size, err = strconv.ParseInt(total, 10, 64); err != nil {
			return nil, 0, fmt.Errorf("read %s: Content-Range %q: %w", key, aws.ToString(out.ContentRange), err)
		}
	}
	return data, size, nil
}

// list returns the objects below a folder whose keys are greater than after, if that is not empty.
func (b *bucket) list(ctx context.Context, below, after string) ([]object, error) {
	var found []object
	input := &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: aws.String(b.prefix + below)}
	if after != "" {
		input.StartAfter = aws.String(b.prefix + after)
	}
	pages := s3.NewListObjectsV2Paginator(b.client, input)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, b.explain("list", err)
		}
		for _, o := range page.Contents {
			found = append(found, object{strings.TrimPrefix(aws.ToString(o.Key), b.prefix), aws.ToInt64(o.Size)})
		}
	}
	return found, nil
}

func (b *bucket) remove(ctx context.Context, key string) error {
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: aws.String(b.prefix + key)})
	return b.explain("delete "+key, err)
}

func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

func statusOf(err error) int {
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		return response.HTTPStatusCode()
	}
	return 0
}
