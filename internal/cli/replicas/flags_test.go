package replicas

import (
	"testing"

	"github.com/spf13/pflag"
)

func TestEndpoint_FromFlagOrEnvironment(t *testing.T) {
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
			var o Flags
			flags := pflag.NewFlagSet("explain", pflag.ContinueOnError)
			o.AddTo(flags)
			if err := flags.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			if got := o.Options(nil).Endpoint; got != c.want {
				t.Errorf("the endpoint is %q, want %q", got, c.want)
			}
		})
	}
}
