package loop

import (
	"context"
	"regexp"

	"k8s.io/client-go/rest"
)

// quieter returns a config without the API server's warnings that a type is deprecated, such
// as "v1 Endpoints is deprecated in v1.33+". Gleaner reads every type that is served, so
// its user can't act on them. Other warnings are handled as before.
func quieter(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	next := config.WarningHandlerWithContext
	switch {
	case next != nil:
	case config.WarningHandler != nil:
		next = withoutContext{config.WarningHandler}
	default:
		next = rest.WarningLogger{} // what client-go has by default
	}
	config.WarningHandler, config.WarningHandlerWithContext = nil, quiet{next}
	return config
}

var deprecated = regexp.MustCompile(`^\S+ \S+ is deprecated in v\d+\.\d+\+`)

type quiet struct {
	next rest.WarningHandlerWithContext
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (q quiet) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	if !deprecated.MatchString(text) {
		q.next.HandleWarningHeaderWithContext(ctx, code, agent, text)
	}
}

type withoutContext struct{ rest.WarningHandler }

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w withoutContext) HandleWarningHeaderWithContext(_ context.Context, code int, agent, text string) {
	w.HandleWarningHeader(code, agent, text)
}
