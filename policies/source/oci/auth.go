package oci

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxToken is the maximum size of a token server's response, in bytes.
const maxToken = 64 << 10

// challenge is an authentication challenge of a registry.
type challenge struct {
	scheme     string            // in lower case
	parameters map[string]string // by name in lower case
}

// parseChallenges parses WWW-Authenticate headers. Invalid challenges are skipped.
func parseChallenges(headers []string) []challenge {
	var found []challenge
	for _, h := range headers {
		scheme, rest, _ := strings.Cut(strings.TrimSpace(h), " ")
		c := challenge{scheme: strings.ToLower(scheme), parameters: map[string]string{}}
		for rest != "" {
			var name, value string
			name, value, rest = parameter(rest)
			if name != "" {
				c.parameters[strings.ToLower(name)] = value
			}
		}
		found = append(found, c)
	}
	return found
}

// parameter parses one name=value or name="value". The rest is always shorter.
func parameter(s string) (name, value, rest string) {
	name, after, ok := strings.Cut(s, "=")
	name = strings.Trim(name, " \t,")
	if !ok {
		return "", "", ""
	}
	if !strings.HasPrefix(after, `"`) {
		value, rest, _ = strings.Cut(after, ",")
		return name, strings.TrimSpace(value), rest
	}
	var b strings.Builder
	for i := 1; i < len(after); i++ {
		switch c := after[i]; {
		case c == '"':
			return name, b.String(), strings.TrimLeft(after[i+1:], " \t,")
		case c == '\\' && i+1 < len(after):
			i++
			b.WriteByte(after[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", "" // unterminated quotes
}

// authorize returns the Authorization header for subsequent requests, or "" if the
// client has no credential that the registry accepts.
func (r *Repository) authorize(ctx context.Context, headers []string) (string, error) {
	if r.credential.RegistryToken != "" {
		return "Bearer " + r.credential.RegistryToken, nil
	}
	challenges := parseChallenges(headers)
	for _, c := range challenges {
		if c.scheme == "bearer" {
			return r.token(ctx, c)
		}
	}
	for _, c := range challenges {
		if c.scheme == "basic" && r.credential.Username != "" {
			return basic(r.credential), nil
		}
	}
	return "", nil
}

func basic(c Credential) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Password))
}

// token exchanges the credential for a token at the server that the challenge
// specifies.
func (r *Repository) token(ctx context.Context, c challenge) (string, error) {
	what := "request token for " + r.reference.Registry
	realm, err := url.Parse(c.parameters["realm"])
	if err != nil || realm.Host == "" || realm.User != nil {
		return "", &MalformedError{Operation: what, Reason: "the challenge has no token server"}
	}
	// The credential is sent there, so the connection must be as secure as that to
	// the registry.
	if realm.Scheme != "https" && (realm.Scheme != "http" || r.scheme != "http") {
		return "", &MalformedError{Operation: what, Reason: "the token server does not use HTTPS"}
	}
	request, err := r.tokenRequest(ctx, realm, c.parameters["service"])
	if err != nil {
		return "", err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", statusError(what, response)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxToken))
	if err != nil {
		return "", err
	}
	var given struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if json.Unmarshal(body, &given) != nil || given.Token == "" && given.AccessToken == "" {
		return "", &MalformedError{Operation: what, Reason: "the response has no token"}
	}
	if given.Token == "" {
		given.Token = given.AccessToken
	}
	return "Bearer " + given.Token, nil
}

// tokenRequest requests access to this repository only, whatever the challenge
// requests.
func (r *Repository) tokenRequest(ctx context.Context, realm *url.URL, service string) (*http.Request, error) {
	scope := "repository:" + r.reference.Repository + ":" + r.actions
	if r.credential.IdentityToken != "" {
		form := url.Values{
			"grant_type": {"refresh_token"}, "refresh_token": {r.credential.IdentityToken},
			"service": {service}, "scope": {scope}, "client_id": {"gleaner"},
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, realm.String(), strings.NewReader(form.Encode()))
		if err != nil {
			return nil, err
		}
		request.GetBody = nil // otherwise a redirect with 307 would send the token to another server
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return request, nil
	}
	query := realm.Query()
	query.Set("service", service)
	query.Set("scope", scope)
	realm.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, realm.String(), nil)
	if err != nil {
		return nil, err
	}
	if r.credential.Username != "" {
		request.Header.Set("Authorization", basic(r.credential))
	}
	return request, nil
}
