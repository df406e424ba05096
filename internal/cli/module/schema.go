package module

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/policies/settings"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// schemaFile is the file of a module in Go or Rust with the schema of its settings.
const schemaFile = "settings.schema.json"

func moduleSchema() *cobra.Command {
	var limits sandbox.Limits
	cmd := &cobra.Command{
		Use:   "schema FILE...",
		Short: "Print the JSON Schema of a module's settings",
		Long: "Print the JSON Schema of a module's settings, for editors. A Rego module has it in an annotation, as schema of\n" +
			"input.policy.settings. A WebAssembly module has it in a custom section: gleaner module build adds the file\n" +
			schemaFile + " of the module. Settings are checked against it when they are applied, and in tests.",
		Example: `  gleaner module schema policy.rego
  gleaner module schema module.wasm.gz > settings.schema.json`,
		Args: requireModule,
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := load(cmd.Context(), limits, args)
			if err != nil {
				return err
			}
			defer m.Close()
			if m.Settings == nil {
				return fmt.Errorf("%s does not describe its settings: in Rego, annotate the package with schemas: [{input.policy.settings: {…}}]; "+
					"in Go and Rust, write %s and build it with gleaner module build", strings.Join(args, ", "), schemaFile)
			}
			var text bytes.Buffer
			if err := json.Indent(&text, m.Settings.JSON(), "", "  "); err != nil {
				return fmt.Errorf("print schema: %w", err)
			}
			text.WriteByte('\n')
			_, err = cmd.OutOrStdout().Write(text.Bytes())
			return err
		},
	}
	loader.AddLimitFlags(cmd.Flags(), &limits)
	return cmd
}

// embedSchema adds the schema in a directory to a module, if there is one.
func embedSchema(dir string, code []byte) ([]byte, error) {
	name := filepath.Join(dir, schemaFile)
	schema, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return code, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	if _, err := settings.Parse(schema); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, schema); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return settings.Embed(code, compact.Bytes())
}
