package main

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
)

// version is set by the linker.
var version = "development"

// versions is the document of gleaner version.
type versions struct {
	kubectl.Document `json:",inline"`

	Gleaner  string `json:"gleanerVersion"`
	Go       string `json:"goVersion"`
	Platform string `json:"platform"` // such as linux/amd64
}

func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !cmd.Flags().Changed("output"):
				_, err := kubectl.Fprintln(cmd.OutOrStdout(), version)
				return err
			case !slices.Contains([]string{"json", "yaml"}, output):
				return usageError{fmt.Errorf("--output=%s: use json or yaml", output)}
			}
			return kubectl.Write(cmd.OutOrStdout(), output, versions{
				Document: kubectl.DocumentOf("Version"), Gleaner: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml, with the version of Go and the platform; without it, the version alone")
	return cmd
}
