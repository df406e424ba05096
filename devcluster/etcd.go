package devcluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// The prefix of what kube-apiserver stores, and the end of its range.
const (
	storagePrefix, storageEnd = "/registry/", "/registry0"
	namespaceKeys             = storagePrefix + "namespaces/"
)

const (
	maxOperations = 100       // in a transaction; etcd allows 128 by default
	maxAnswer     = 256 << 20 // bytes
)

// EraseNamespace deletes a namespace and all objects in it from etcd, with two or three requests. The API server and
// its watchers see them go; finalizers and admission are not asked. It is for the end of a test: to delete a namespace, the namespace
// controller sends two requests for each type of object, about 130.
func (c *Cluster) EraseNamespace(ctx context.Context, name string) error {
	if name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("erase namespace %q: give the name of a namespace", name)
	}
	store, err := c.etcdClient()
	if err != nil {
		return fmt.Errorf("erase namespace %s: %w", name, err)
	}
	defer store.http.CloseIdleConnections()
	keys, err := store.keys(ctx)
	if err != nil {
		return fmt.Errorf("erase namespace %s: %w", name, err)
	}
	// The namespace first: nothing can be created in it then.
	doomed := slices.Insert(slices.DeleteFunc(keys, func(key string) bool { return !inNamespace(key, name) }), 0, namespaceKeys+name)
	for part := range slices.Chunk(doomed, maxOperations) {
		if err := store.delete(ctx, part); err != nil {
			return fmt.Errorf("erase namespace %s: %w", name, err)
		}
	}
	return nil
}

// inNamespace reports whether a key is that of an object in a namespace: /registry/pods/NAMESPACE/NAME, or
// /registry/GROUP/RESOURCE/NAMESPACE/NAME. The names of objects without a namespace come last.
func inNamespace(key, name string) bool {
	folder, _, found := strings.Cut(key, "/"+name+"/")
	return found && strings.HasPrefix(folder, storagePrefix)
}

// etcdClient is a client of the JSON gateway of etcd.
type etcdClient struct {
	http *http.Client
	url  string
}

func (c *Cluster) etcdClient() (etcdClient, error) {
	pair, err := c.ca.client(etcdClientName)
	if err != nil {
		return etcdClient{}, err
	}
	cert, err := pair.tls()
	if err != nil {
		return etcdClient{}, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.ca.pem)
	return etcdClient{
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{cert}}}},
		url:  fmt.Sprintf("https://%s:%d", loopback, c.ports.etcd),
	}, nil
}

func (e etcdClient) keys(ctx context.Context) ([]string, error) {
	var answer struct {
		Pairs []struct{ Key []byte } `json:"kvs"`
	}
	err := e.post(ctx, "/v3/kv/range", map[string]any{"key": []byte(storagePrefix), "range_end": []byte(storageEnd), "keys_only": true}, &answer)
	keys := make([]string, 0, len(answer.Pairs))
	for _, pair := range answer.Pairs {
		keys = append(keys, string(pair.Key))
	}
	return keys, err
}

func (e etcdClient) delete(ctx context.Context, keys []string) error {
	type operation struct {
		Delete map[string][]byte `json:"request_delete_range"`
	}
	operations := make([]operation, 0, len(keys))
	for _, key := range keys {
		operations = append(operations, operation{map[string][]byte{"key": []byte(key)}})
	}
	var answer struct{ Succeeded bool }
	err := e.post(ctx, "/v3/kv/txn", map[string]any{"success": operations}, &answer)
	if err == nil && !answer.Succeeded {
		err = errors.New("etcd: the transaction did not succeed")
	}
	return err
}

func (e etcdClient) post(ctx context.Context, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode request for etcd: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("etcd: %w", err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("etcd: %s: %.200s", resp.Status, text)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("etcd: answer of %s: %w", path, err)
	}
	return nil
}
