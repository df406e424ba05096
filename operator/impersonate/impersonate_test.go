package impersonate_test

import (
	"strconv"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/impersonate"
	"github.com/gleaner-dev/gleaner/policies"
)

func TestFor_ActsAsTheServiceAccount(t *testing.T) {
	own, created := &rest.Config{Host: "https://127.0.0.1:1"}, 0
	clients := impersonate.New(own, func(c *rest.Config) (string, error) {
		created++
		return c.Impersonate.UserName, nil
	})
	for account, want := range map[policies.ServiceAccount]string{
		{Namespace: "shop", Name: "janitor"}: "system:serviceaccount:shop:janitor",
		{}:                                   "system:serviceaccount::", // not Gleaner itself
	} {
		for range 2 {
			if got, err := clients.For(account); err != nil || got != want {
				t.Errorf("%+v acts as %q, %v", account, got, err)
			}
		}
	}
	if created != 2 || own.Impersonate.UserName != "" {
		t.Errorf("%d clients were created, and the configuration impersonates %q", created, own.Impersonate.UserName)
	}
}

func TestFor_KeepsNotMoreThanMaxClients(t *testing.T) {
	created := 0
	clients := impersonate.New(&rest.Config{}, func(*rest.Config) (int, error) {
		created++
		return created, nil
	})
	get := func(name string) {
		t.Helper()
		if _, err := clients.For(policies.ServiceAccount{Namespace: "ns", Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range impersonate.MaxClients + 1 {
		get(strconv.Itoa(i))
	}
	get("0")
	if want := impersonate.MaxClients + 2; created != want {
		t.Errorf("%d clients were created, want %d: the first one is kept", created, want)
	}
}
