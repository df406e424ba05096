package run

import (
	"context"
	"regexp"

	"k8s.io/client-go/rest"
)

// withoutDeprecations returns a config that omits the API server's warnings that a type is
// deprecated, such as "v1 Endpoints is deprecated in v1.33+". Gleaner reads every type that is served, so
// its user can't act on them. Other warnings are handled as before.
func withoutDeprecations(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	next := config.WarningHandlerWithContext
	switch {
	case next != nil:
	case config.WarningHandler != nil:
		next = withoutContext{config.WarningHandler}
	default:
		next = rest.WarningLogger{} // the default of client-go
	}
	config.WarningHandler, config.WarningHandlerWithContext = nil, filter{next}
	return config
}

var deprecated = regexp.MustCompile(`^\S+ \S+ is deprecated in v\d+\.\d+\+`)

type filter struct {
	next rest.WarningHandlerWithContext
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (f filter) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	if !deprecated.MatchString(text) {
		f.next.HandleWarningHeaderWithContext(ctx, code, agent, text)
	}
}

type withoutContext struct{ rest.WarningHandler }

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w withoutContext) HandleWarningHeaderWithContext(_ context.Context, code int, agent, text string) {
	w.HandleWarningHeader(code, agent, text)
}
