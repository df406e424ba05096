// Package buildinfo implements gleaner version.
package buildinfo

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

// versions is the output document of gleaner version.
type versions struct {
	printer.Document `json:",inline"`

	Gleaner  string `json:"gleanerVersion"`
	Go       string `json:"goVersion"`
	Platform string `json:"platform"` // such as linux/amd64
}

// Command returns the command gleaner version.
func Command(version string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !cmd.Flags().Changed("output"):
				_, err := printer.Fprintln(cmd.OutOrStdout(), version)
				return err
			case !slices.Contains([]string{"json", "yaml"}, output):
				return exit.AsUsage(fmt.Errorf("--output=%s: use json or yaml", output))
			}
			return printer.Write(cmd.OutOrStdout(), output, versions{
				Document: printer.DocumentOf("Version"), Gleaner: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "output `format`: json or yaml, which include the Go version and the platform; by default only the version")
	return cmd
}
