// Package replay implements gleaner replay.
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/records"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// options are the flags of gleaner replay.
type options struct {
	modules   []string
	all       bool
	records   records.Flags
	limits    sandbox.Limits
	backtests backtestOptions
}

const long = `Evaluate a module again on recorded requests, and compare the verdicts: the same module returns the
same verdicts with the same fuel, and for a changed one the differences are shown. Intents of the module are not carried out:
it receives the recorded results.

With -f, backtest policies: evaluate them on recorded decisions as if they had been applied, and list each decision that would
have been different. Decisions whose record does not contain what a policy reads, such as labels without a transcript, count as
NotEvaluable, never as unchanged. Policies in Monitor mode are evaluated as if they enforced. The files are added to the
policies in the cluster; with --archive or RECORD.json no cluster is used, and the files must have all policies.

The records are those of RECORD.json, which is the output of /debug/gc/records?exchanges=true&uid=UID&limit=1 or one of its
items, and "-" is standard input; or, without a file, those of the operator, or with --archive those of its store.

Exit codes: 0 if nothing is different; 1 if anything is, or for an error; 2 if a file can't be read or contains nothing to
replay; 3 if --require-evaluable is set, nothing is different, and any decision is not evaluable. A difference in fuel counts
only if the module is the recorded one.`

// Command returns the command gleaner replay.
func Command() *cobra.Command {
	o := options{backtests: backtestOptions{Flags: kubectl.NewFlags("json", "yaml")}}
	cmd := &cobra.Command{
		Use:   "replay [RECORD.json] (--module FILE | -f FILE)",
		Short: "Evaluate modules or policies again on recorded decisions, and show what would be different",
		Long:  long,
		Example: `  gleaner replay -f policy.yaml --since 24h      # which decisions would a new policy have changed?
  gleaner replay -f policies.yaml --archive s3://backups/gleaner -o json
  gleaner replay -f policy.yaml --module keep=policy.rego --require-evaluable
  gleaner replay records.json --module policy.rego --index 0
  gleaner replay --uid 0f3c8d1e-… --module module.wasm.gz --all`,
		Args: acceptRecordFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := loader.CheckLimits(o.limits); err != nil {
				return err
			}
			if len(o.backtests.Files) != 0 {
				return o.backtest(cmd, args)
			}
			if len(o.modules) == 0 {
				return exit.AsUsage(errors.New("set --module: a WebAssembly file, or a Rego file or directory; or -f: files with policies"))
			}
			found, err := o.selectTranscripts(cmd, args)
			if err != nil {
				return exit.AsUsage(err)
			}
			return o.replay(cmd, found)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.modules, "module", nil, "WebAssembly `file`, or Rego file or directory; for several Rego files, repeat the flag. With -f, NAME=FILE or NAMESPACE/NAME=FILE")
	flags.BoolVar(&o.all, "all", false, "replay all records that are replayable, instead of one")
	o.records.Add(flags)
	loader.AddLimitFlags(flags, &o.limits)
	o.backtests.addTo(cmd)
	return cmd
}

func acceptRecordFile(cmd *cobra.Command, args []string) error {
	if len(args) <= 1 {
		return nil
	}
	return exit.AsUsage(fmt.Errorf("%s accepts one file with records; see %s --help", cmd.CommandPath(), cmd.CommandPath()))
}

// selectTranscripts reads the records, and returns the transcripts to replay.
func (o *options) selectTranscripts(cmd *cobra.Command, args []string) ([]records.Transcript, error) {
	if len(args) == 0 && o.records.Object().UID == "" && o.backtests.since == "" {
		return nil, errors.New("name a file with records, or select those of the operator or of --archive with --uid or --since")
	}
	list, err := o.backtests.read(cmd.Context(), cmd.InOrStdin(), args, record.Query{Object: o.records.Object()})
	if err != nil {
		return nil, err
	}
	if o.all {
		return o.records.AllReplayable(list.Entries, cmd.ErrOrStderr())
	}
	one, err := o.records.Single(list.Entries)
	return []records.Transcript{one}, err
}

// replay evaluates all transcripts.
func (o *options) replay(cmd *cobra.Command, found []records.Transcript) error {
	m, err := loader.Load(cmd.Context(), o.limits, o.modules)
	if err != nil {
		return exit.AsUsage(err)
	}
	defer m.Close()
	digests, err := DigestsOf(m, o.modules)
	if err != nil {
		return exit.AsUsage(err)
	}
	r := replayer{module: m, digests: digests, out: cmd.OutOrStdout(), log: cmd.ErrOrStderr()}
	for i, t := range found {
		if i > 0 {
			printer.Fprintln(r.out)
		}
		if err := r.replay(cmd.Context(), t); err != nil {
			return err
		}
	}
	if r.different != 0 {
		return fmt.Errorf("%d of %s differ from the record", r.different, printer.Count(r.rounds, "round", "rounds"))
	}
	return nil
}

// DigestsOf returns the digests that a record may have for the module: for Rego, of the files
// with and without their tests, since either may have been fetched.
func DigestsOf(m *loader.Module, names []string) ([]string, error) {
	files, err := loader.RegoFiles(names)
	if err != nil || len(files) == 0 {
		return []string{m.Facts.Digest}, err
	}
	return []string{loader.DigestOf(files, false), loader.DigestOf(files, true)}, nil
}

// replayer evaluates one module on transcripts.
type replayer struct {
	module   *loader.Module
	digests  []string
	out, log io.Writer

	rounds, different int // compared, and how many of them are different
}

// replay evaluates the requests of one transcript.
func (r *replayer) replay(ctx context.Context, t records.Transcript) error {
	first := t.Evaluation.Exchanges[0].Request
	printer.Fprintf(r.out, "%s: %s at %s, by %s\n", t.Entry.Object, first.Hook, t.Entry.Time.UTC().Format(time.RFC3339), t.Evaluation.Policy)
	same := slices.Contains(r.digests, t.Evaluation.Digest)
	if same {
		printer.Fprintf(r.out, "the module is the same as recorded: sha256 %s\n", t.Evaluation.Digest)
	} else {
		printer.Fprintf(r.out, "the module is different: recorded sha256 %s, now %s\n", t.Evaluation.Digest, r.digests[0])
	}
	strayed := false
	for i, then := range t.Evaluation.Exchanges {
		now, err := r.evaluate(ctx, then)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		c := comparison{recorded: then, replayed: now, sameModule: same, diverged: strayed}
		changes := c.differences()
		strayed = strayed || len(changes) != 0
		c.print(r.out, i+1, changes)
		if then.Replayable() {
			r.rounds++
			if c.differs(changes) {
				r.different++
			}
		}
	}
	return nil
}

// evaluate evaluates one request. The error is a host error.
func (r *replayer) evaluate(ctx context.Context, then policies.Exchange) (policies.Exchange, error) {
	a, err := r.module.Evaluate(ctx, then.Request)
	now := policies.NewExchange(then.Request, policies.Evaluation{Verdict: a.Verdict, Fuel: a.Usage.Fuel}, err)
	if now.Fault != "" && now.FaultKind == "" {
		return now, err
	}
	r.module.PrintLog(r.log, a.Log)
	return now, nil
}
