package main

import (
	"testing"

	"github.com/spf13/pflag"
)

func TestEndpoint_IsOfTheFlagElseOfTheEnvironment(t *testing.T) {
	const variable, flag = "http://127.0.0.1:1", "http://127.0.0.1:2"
	for claim, c := range map[string]struct {
		environment string
		args        []string
		want        string
	}{
		"neither":                     {"", nil, ""},
		"the environment":             {variable, nil, variable},
		"the flag":                    {"", []string{"--endpoint", flag}, flag},
		"the flag before the other":   {variable, []string{"--endpoint", flag}, flag},
		"an empty flag":               {variable, []string{"--endpoint="}, ""},
		"pods in a named namespace":   {variable, []string{"--operator-namespace", "gleaner-system"}, ""},
		"another flag of no endpoint": {variable, []string{"--token-of", "a/b"}, variable},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Setenv("GLEANER_ENDPOINT", c.environment)
			var o operatorFlags
			flags := pflag.NewFlagSet("explain", pflag.ContinueOnError)
			o.addTo(flags)
			if err := flags.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			if got := o.where(nil).Endpoint; got != c.want {
				t.Errorf("the endpoint is %q, want %q", got, c.want)
			}
		})
	}
}

func TestEndpoint_OfTheEnvironmentThatIsNoneIsToldSo(t *testing.T) {
	t.Setenv("GLEANER_ENDPOINT", "127.0.0.1:1")
	for _, command := range [][]string{{"explain", "configmap/a"}, {"doctor"}} {
		_, err := execute(t, command...)
		if err == nil {
			t.Fatal("it is taken")
		}
		says(t, err.Error(), "$GLEANER_ENDPOINT", "write a URL, such as https://127.0.0.1:8443")
	}
}
