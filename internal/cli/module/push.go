package module

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/policies/rego"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
	"github.com/gleaner-dev/gleaner/policies/source/oci"
	"github.com/gleaner-dev/gleaner/policies/source/signature"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

func modulePush() *cobra.Command {
	var limits sandbox.Limits
	var signKey string
	cmd := &cobra.Command{
		Use:   "push FILE... REGISTRY/REPOSITORY[:TAG]",
		Short: "Push a module to a registry as an OCI artifact",
		Long: "Push a valid module to a registry as an OCI artifact, and print the image reference for its resource.\n" +
			"By default, the tag is derived from the digest, since some registries remove untagged artifacts. Credentials\n" +
			"are those of docker login or podman login. HTTPS is required, except for a registry on this machine.\n" +
			"With --sign-key, also sign the image, for spec.verify of its resource. The password of an encrypted key is\n" +
			"read from $COSIGN_PASSWORD.",
		Example: `  gleaner module push module.wasm.gz registry.example.com/team/bucket-cleaner:v1
  gleaner module push policy.rego registry.example.com/team/keep-claims
  gleaner module push policy.rego registry.example.com/team/keep-claims --sign-key cosign.key`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exit.AsUsage(fmt.Errorf("%s requires a module and a target: REGISTRY/REPOSITORY", cmd.CommandPath()))
			}
			if err := loader.CheckLimits(limits); err != nil {
				return err
			}
			names, to := args[:len(args)-1], args[len(args)-1]
			reference, err := oci.ParseReference(to)
			if err != nil {
				return exit.AsUsage(fmt.Errorf("push to %s: %w", to, err))
			}
			if reference.Digest != "" {
				return exit.AsUsage(fmt.Errorf("push to %s: omit the digest, which is that of the module", to))
			}
			key, err := readSignKey(signKey)
			if err != nil {
				return err
			}
			m, err := loader.Load(cmd.Context(), limits, names)
			if err != nil {
				return err
			}
			m.Close() // it is valid
			return push(cmd.Context(), cmd.OutOrStdout(), names, reference, key)
		},
	}
	loader.AddLimitFlags(cmd.Flags(), &limits)
	cmd.Flags().StringVar(&signKey, "sign-key", "", "`file` with the private key to sign the image with, such as cosign.key")
	return cmd
}

// push packs the files and pushes them to the reference. The key may be nil.
func push(ctx context.Context, out io.Writer, names []string, to oci.Reference, key *signature.PrivateKey) error {
	files, artifact, err := packModule(names)
	if err != nil {
		return err
	}
	sum := source.Digest(files)
	if to.Tag == "" {
		to.Tag = "sha256-" + sum[:16]
	}
	credential, err := oci.UserCredential(ctx, to)
	if err != nil {
		return err
	}
	client, err := egress.New(egress.Config{AllowPrivate: true, AllowLoopbackHTTP: true, RevealAddresses: true})
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	repository := oci.NewRepository(client, to, credential)
	digest, err := repository.Push(ctx, artifact, to.Tag)
	if err != nil {
		return explainPush(to, err)
	}
	if key != nil {
		if err := attachSignature(ctx, repository, digest, key); err != nil {
			return fmt.Errorf("sign %s, which was pushed: %w", to.ByDigest(digest), err)
		}
	}
	printer.Fprintf(out, "image: %s\nsha256: %s\n", to.ByDigest(digest), sum)
	return nil
}

// packModule reads the module as it will be pulled: decompressed, and without tests.
func packModule(names []string) ([]source.File, oci.Artifact, error) {
	policies, err := loader.RegoFiles(names)
	if err != nil {
		return nil, oci.Artifact{}, err
	}
	if len(policies) != 0 {
		files, err := packRego(policies)
		if err != nil {
			return nil, oci.Artifact{}, err
		}
		artifact, err := oci.PackRego(files)
		return files, artifact, err
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		return nil, oci.Artifact{}, fmt.Errorf("read module: %w", err)
	}
	code, err := source.Decompress(data, loader.MaxModuleSize)
	if err != nil {
		return nil, oci.Artifact{}, fmt.Errorf("%s: %w", names[0], err)
	}
	file := source.File{Name: strings.TrimSuffix(filepath.Base(names[0]), ".gz"), Data: code}
	artifact, err := oci.PackWasm(file)
	return []source.File{file}, artifact, err
}

func packRego(policies []rego.File) ([]source.File, error) {
	var files []source.File
	for _, p := range policies {
		name := filepath.Base(p.Name)
		if strings.HasSuffix(name, "_test.rego") {
			continue
		}
		if slices.ContainsFunc(files, func(f source.File) bool { return f.Name == name }) {
			return nil, fmt.Errorf("pack %s: duplicate file name: rename it, since artifacts have no directories", p.Name)
		}
		files = append(files, source.File{Name: name, Data: []byte(p.Text)})
	}
	slices.SortFunc(files, func(a, b source.File) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

// explainPush adds what to do about a refused push.
func explainPush(to oci.Reference, err error) error {
	status := new(oci.StatusError)
	if errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden) {
		return fmt.Errorf("push to %s: %w: log in with docker login %s as a user who is allowed to push", to, err, to.Registry)
	}
	return fmt.Errorf("push to %s: %w", to, err)
}
