package node

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Linger is an image that every node has, also for sandboxes. Its program waits for
// SIGTERM, then for as long as its argument says, such as 3s, and ends well.
const Linger = "gleaner.test/linger:1"

//go:embed linger/main.go
var lingerSource []byte

// importLinger builds the program from the embedded source, so that it needs no checkout.
func (n *Node) importLinger(ctx context.Context) error {
	dir := filepath.Join(n.folder, "linger")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("create build folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), lingerSource, 0o600); err != nil {
		return fmt.Errorf("write source of image: %w", err)
	}
	program := n.LingerPath()
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "main.go")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0", "GOOS=", "GOARCH=")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build program of image: %w\n%s", errors.Join(ctx.Err(), err), output)
	}
	return n.Import(ctx, Linger, program)
}

// LingerPath is the program of the image Linger.
func (n *Node) LingerPath() string { return filepath.Join(n.folder, "linger", "linger") }

// Import gives the node an image, with a name such as example.com/web:1, of one program
// that is static and for this machine's architecture. Pods that use it say
// imagePullPolicy: Never.
func (n *Node) Import(ctx context.Context, image, program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read program of image: %w", err)
	}
	packed, err := pack(image, filepath.Base(program), content)
	if err != nil {
		return fmt.Errorf("pack image %s: %w", image, err)
	}
	archive := program + ".image"
	if err := os.WriteFile(archive, packed, 0o600); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	defer os.Remove(archive)
	if _, err := n.ctr(ctx, "image", "import", "--local", "--snapshotter", "native", archive); err != nil {
		return fmt.Errorf("import image %s: %w", image, err)
	}
	return nil
}

// Pin has the runtime say that an image is pinned, from when it looks at it next.
func (n *Node) Pin(ctx context.Context, image string) error {
	if _, err := n.ctr(ctx, "image", "label", image, "io.cri-containerd.pinned=pinned"); err != nil {
		return fmt.Errorf("pin image %s: %w", image, err)
	}
	return nil
}

// pack makes an image in the form of "docker save".
func pack(image, program string, content []byte) ([]byte, error) {
	layer, err := archive(file{program, content})
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH,
		Config: v1.Config{Entrypoint: []string{"/" + program}, Labels: map[string]string{"gleaner.test/program": program}},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sha256.Sum256(layer))}}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{image}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	return archive(file{"layer.tar", layer}, file{"config.json", config}, file{"manifest.json", manifest})
}

type file struct {
	name    string
	content []byte
}

func archive(files ...file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o755, Size: int64(len(f.content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// Running returns the containers of a Pod, among them its sandbox, that have a process,
// as containerd knows them.
func (n *Node) Running(ctx context.Context, pod types.UID) ([]string, error) {
	listed, err := n.ctr(ctx, "containers", "list", "--quiet", fmt.Sprintf("labels.%q==%s", "io.kubernetes.pod.uid", pod))
	if err != nil {
		return nil, err
	}
	tasks, err := n.ctr(ctx, "tasks", "list")
	if err != nil {
		return nil, err
	}
	var running []string
	for line := range strings.Lines(tasks) {
		fields := strings.Fields(line) // container, process, state
		if len(fields) == 3 && fields[2] == "RUNNING" && slices.Contains(strings.Fields(listed), fields[0]) {
			running = append(running, fields[0])
		}
	}
	return running, nil
}

// ctr runs containerd's client in the namespace of Kubernetes and returns what it printed.
func (n *Node) ctr(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--address", n.socket(), "--namespace", "k8s.io"}, args...)
	cmd := exec.CommandContext(ctx, n.tools.ctr, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
