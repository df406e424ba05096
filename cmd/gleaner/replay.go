package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/rego"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// replayOptions are the flags of gleaner replay.
type replayOptions struct {
	modules []string
	all     bool
	records recordFlags
	limits  sandbox.Limits
}

func replayCommand() *cobra.Command {
	o := replayOptions{}
	cmd := &cobra.Command{
		Use:   "replay RECORD.json --module FILE",
		Short: "Ask a module again what it was asked in a cluster, and compare",
		Long: "Ask a module again what it was asked in a cluster, and compare: the same module gives the same\n" +
			"verdicts for the same fuel, and a newer one shows what it would have said. A record is what\n" +
			"  /debug/gc/records?exchanges=true&uid=UID&limit=1\n" +
			"prints, or one of its items; \"-\" is the standard input. No cluster is asked, and nothing that a\n" +
			"module asks for is carried out: it is given the recorded results.\n\n" +
			"It exits with 1 if something is different, and with 2 if a file can't be read or holds nothing to\n" +
			"replay. The fuel of another module than the recorded one is shown, and does not count.",
		Example: `  gleaner replay records.json --module policy.rego --index 0
  gleaner replay records.json --module module.wasm.gz --all`,
		Args: oneRecord,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(o.modules) == 0 {
				return usageError{errors.New("name the module with --module: a file of WebAssembly, or a file or a folder of Rego")}
			}
			if err := checkLimits(o.limits); err != nil {
				return err
			}
			found, err := o.choose(cmd, args[0])
			if err != nil {
				return usageError{err}
			}
			return o.replay(cmd, found)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.modules, "module", nil, "`file` of WebAssembly, or file or folder of Rego; of Rego, more than once for several files")
	flags.BoolVar(&o.all, "all", false, "replay all records that can be, in place of one")
	o.records.add(flags)
	limitFlags(flags, &o.limits)
	return cmd
}

func oneRecord(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return usageError{fmt.Errorf("%s needs one file with records; see %s --help", cmd.CommandPath(), cmd.CommandPath())}
}

// choose reads what is to be replayed.
func (o *replayOptions) choose(cmd *cobra.Command, file string) ([]transcript, error) {
	entries, err := readEntries(cmd.InOrStdin(), file)
	if err != nil {
		return nil, err
	}
	if o.all {
		return o.records.every(entries, cmd.ErrOrStderr())
	}
	one, err := o.records.one(entries)
	return []transcript{one}, err
}

// replay puts all questions again.
func (o *replayOptions) replay(cmd *cobra.Command, found []transcript) error {
	m, err := loadModule(cmd.Context(), o.limits, o.modules)
	if err != nil {
		return usageError{err}
	}
	defer m.close()
	digests, err := digestsOf(m, o.modules)
	if err != nil {
		return usageError{err}
	}
	r := replayer{module: m, digests: digests, out: cmd.OutOrStdout(), log: cmd.ErrOrStderr()}
	for i, t := range found {
		if i > 0 {
			kubectl.Fprintln(r.out)
		}
		if err := r.replay(cmd.Context(), t); err != nil {
			return err
		}
	}
	if r.differ != 0 {
		return fmt.Errorf("%d of %s came out otherwise than recorded", r.differ, counted(r.rounds, "round", "rounds"))
	}
	return nil
}

// digestsOf are what a record may know the module by: of Rego, the digest of the
// files as they were fetched, which may have been with their tests or without.
func digestsOf(m *loaded, names []string) ([]string, error) {
	files, err := regoFiles(names)
	if err != nil || len(files) == 0 {
		return []string{m.facts.Digest}, err
	}
	return []string{digestOf(files, false), digestOf(files, true)}, nil
}

// digestOf is what a resource knows a module in Rego by, with its tests or without.
func digestOf(files []rego.File, tests bool) string {
	var list []source.File
	for _, f := range files {
		if tests || !strings.HasSuffix(f.Name, "_test.rego") {
			list = append(list, source.File{Name: filepath.Base(f.Name), Data: []byte(f.Text)})
		}
	}
	slices.SortFunc(list, func(a, b source.File) int { return strings.Compare(a.Name, b.Name) })
	return source.Digest(list)
}

// replayer asks one module.
type replayer struct {
	module   *loaded
	digests  []string
	out, log io.Writer

	rounds, differ int // that were compared, and how many of them were not the same
}

// replay puts the questions of one transcript.
func (r *replayer) replay(ctx context.Context, t transcript) error {
	first := t.asked.Exchanges[0].Request
	kubectl.Fprintf(r.out, "%s: %s at %s, by %s\n", t.entry.Object, first.Hook, t.entry.Time.UTC().Format(time.RFC3339), t.asked.Policy)
	same := slices.Contains(r.digests, t.asked.Digest)
	if same {
		kubectl.Fprintf(r.out, "the module is the recorded one, sha256 %s\n", t.asked.Digest)
	} else {
		kubectl.Fprintf(r.out, "the module is another one: sha256 %s then, %s now\n", t.asked.Digest, r.digests[0])
	}
	strayed := false
	for i, then := range t.asked.Exchanges {
		now, err := r.ask(ctx, then)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		c := compared{then: then, now: now, sameModule: same, strayed: strayed}
		changes := c.changes()
		strayed = strayed || len(changes) != 0
		c.print(r.out, i+1, changes)
		if then.Repeats() {
			r.rounds++
			if c.differs(changes) {
				r.differ++
			}
		}
	}
	return nil
}

// ask puts one question again. The error is the host's.
func (r *replayer) ask(ctx context.Context, then policies.Exchange) (policies.Exchange, error) {
	a, err := r.module.ask(ctx, then.Request)
	now := policies.ExchangeOf(then.Request, policies.Answer{Verdict: a.verdict, Fuel: a.usage.Fuel}, err)
	if now.Fault != "" && now.FaultKind == "" {
		return now, err
	}
	r.module.say(r.log, a.log)
	return now, nil
}
