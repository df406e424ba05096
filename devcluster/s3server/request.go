package s3server

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Response is what the server answers.
type Response struct {
	Status int
	Body   string
}

// Request sends a signed request: the path, with its query, is that of a bucket
// or of an object in one, with all but letters, digits, -._~ and / encoded.
func (s *Server) Request(ctx context.Context, method, path, body string) (Response, error) {
	check := md5.Sum([]byte(body))
	return s.Send(ctx, method, s.URL+path, map[string]string{"Content-Md5": base64.StdEncoding.EncodeToString(check[:])}, body)
}

// Send signs a request and sends it.
func (s *Server) Send(ctx context.Context, method, url string, headers map[string]string, body string) (Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return Response{}, fmt.Errorf("make a request: %w", err)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	sum := sha256.Sum256([]byte(body))
	payload := hex.EncodeToString(sum[:])
	request.Header.Set("X-Amz-Content-Sha256", payload)
	keys := aws.Credentials{AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey}
	raw := func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true } // as S3 has it
	if err := v4.NewSigner().SignHTTP(ctx, keys, request, payload, "s3", s.Region, time.Now(), raw); err != nil {
		return Response{}, fmt.Errorf("sign %s %s: %w", method, url, err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return Response{}, fmt.Errorf("%s %s: %w", method, url, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return Response{}, fmt.Errorf("read the answer to %s %s: %w", method, url, err)
	}
	return Response{Status: response.StatusCode, Body: string(answer)}, nil
}
