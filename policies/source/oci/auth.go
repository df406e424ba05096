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

// mostToken is the most bytes that the answer of a token server may have.
const mostToken = 64 << 10

// challenge is one way to prove who one is, of those that a registry offers.
type challenge struct {
	scheme     string            // in lower case
	parameters map[string]string // by name in lower case
}

// parseChallenges reads headers WWW-Authenticate. What makes no sense is left
// out: there may be another that does.
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

// parameter takes one name=value or name="value" from the front. What is left is
// always shorter.
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
	return "", "", "" // the quotes don't end
}

// answer finds what to send as the header Authorization from now on. It is empty
// if the client has nothing that the registry would take.
func (r *Repository) answer(ctx context.Context, headers []string) (string, error) {
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

// token exchanges the credential for a token, where the registry says.
func (r *Repository) token(ctx context.Context, c challenge) (string, error) {
	what := "ask for a token for " + r.reference.Registry
	realm, err := url.Parse(c.parameters["realm"])
	if err != nil || realm.Host == "" || realm.User != nil {
		return "", &MalformedError{What: what, Why: "the registry names no server that gives them"}
	}
	// The credential goes there, so the way must be as safe as to the registry.
	if realm.Scheme != "https" && (realm.Scheme != "http" || r.scheme != "http") {
		return "", &MalformedError{What: what, Why: "the registry names a server that is not reached by HTTPS"}
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
	body, err := io.ReadAll(io.LimitReader(response.Body, mostToken))
	if err != nil {
		return "", err
	}
	var given struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if json.Unmarshal(body, &given) != nil || given.Token == "" && given.AccessToken == "" {
		return "", &MalformedError{What: what, Why: "there is none in the answer"}
	}
	if given.Token == "" {
		given.Token = given.AccessToken
	}
	return "Bearer " + given.Token, nil
}

// tokenRequest asks for this repository only, whatever the challenge says.
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
