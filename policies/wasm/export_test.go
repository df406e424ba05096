package wasm

import (
	"context"
	"errors"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// EvaluateFresh asks an instance that has initialized itself, in place of one that
// starts from what another's initialization led to. It returns the verdict as it
// was written, and the fuel of the call.
func EvaluateFresh(ctx context.Context, m *Module, request hostabi.Request) (string, int64, error) {
	document, err := hostabi.MarshalRequest(request)
	if err != nil {
		return "", 0, err
	}
	c := newCall(document, request.Time, defaultLogBytes)
	before := newCall(nil, request.Time, 0)
	run := func(then ...func(ctx context.Context, in *sandbox.Instance) error) (int64, error) {
		pool, err := m.loaded.NewPool(ctx, sandbox.PoolOptions{
			Initialize: func(ctx context.Context, in *sandbox.Instance) error {
				_, err := in.Call(context.WithValue(ctx, callKey{}, before), initialize)
				for _, do := range then {
					if err == nil {
						err = do(ctx, in)
					}
				}
				return err
			},
		})
		if err != nil {
			return 0, err
		}
		defer pool.Close()
		return pool.InitFuel, nil
	}
	alone, err := run()
	if err != nil {
		return "", 0, err
	}
	before = newCall(nil, request.Time, 0)
	both, err := run(func(ctx context.Context, in *sandbox.Instance) error {
		_, err := in.Call(context.WithValue(ctx, callKey{}, c), string(request.Hook))
		return err
	})
	return string(c.verdict), both - alone, err
}

var errThrownAway = errors.New("thrown away")

// EvaluateOnce is EvaluateMetered with an instance that is thrown away afterwards, as one is that
// changed a table. A policy that is evaluated in no other way has a fresh one for
// each call.
func EvaluateOnce(ctx context.Context, p *Policy, request hostabi.Request) (Evaluation, error) {
	document, err := hostabi.MarshalRequest(request)
	if err != nil {
		return Evaluation{}, err
	}
	c := newCall(document, request.Time, p.options.LogBytes)
	var a Evaluation
	a.Usage, err = p.pool.Run(ctx, func(ctx context.Context, in *sandbox.Instance) error {
		_, err := in.Call(context.WithValue(ctx, callKey{}, c), string(request.Hook))
		return errors.Join(err, errThrownAway)
	})
	if stopped := (*sandbox.TrapError)(nil); !errors.Is(err, errThrownAway) || errors.As(err, &stopped) {
		return a, err
	}
	a.Log = c.log.end()
	a.Verdict, err = hostabi.ParseVerdict(request.Hook, c.verdict)
	return a, err
}
