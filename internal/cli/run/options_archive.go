package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/open"
	operator "github.com/gleaner-dev/gleaner/operator/run"
)

// archiveOptions are the flags of run for the archive.
type archiveOptions struct {
	archive        string
	archiveMaxSize string
	recordTTL      time.Duration
}

func defaultArchiveOptions() archiveOptions {
	return archiveOptions{archiveMaxSize: "10Gi", recordTTL: 7 * 24 * time.Hour}
}

func (o *archiveOptions) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.archive, "archive", o.archive,
		"`location` of the archive of deleted objects and decision records: file:///FOLDER, for a single replica, or s3://BUCKET/PREFIX; by default none")
	flags.StringVar(&o.archiveMaxSize, "archive-max-size", o.archiveMaxSize,
		"maximum size of the archive, as a `quantity`; the oldest entries and records are removed; 0 is unlimited")
	flags.DurationVar(&o.recordTTL, "record-ttl", o.recordTTL,
		"how long decision records are kept in the archive; 0 keeps them as long as there is room")
}

// validate returns an error for every invalid option. It changes nothing.
func (o *archiveOptions) validate() error {
	_, wrongLimits := o.limits()
	var wrongLocation error
	if o.archive != "" {
		if _, err := open.Parse(o.archive); err != nil {
			wrongLocation = fmt.Errorf("--archive: %w", err)
		}
	}
	return errors.Join(wrongLocation, wrongLimits)
}

func (o *archiveOptions) limits() (archive.Limits, error) {
	var wrong []error
	size, err := resource.ParseQuantity(o.archiveMaxSize)
	if err != nil || size.Sign() < 0 || size.Cmp(*resource.NewQuantity(math.MaxInt64, resource.BinarySI)) > 0 {
		wrong = append(wrong, fmt.Errorf("--archive-max-size=%s: use a quantity such as 10Gi, or 0 for no limit", o.archiveMaxSize))
	}
	if o.recordTTL < 0 || o.recordTTL > 0 && o.recordTTL < time.Minute {
		wrong = append(wrong, fmt.Errorf("--record-ttl=%s: use 1m or more, or 0 for no limit", o.recordTTL))
	}
	return archive.Limits{MaxBytes: size.Value(), RecordTTL: o.recordTTL}, errors.Join(wrong...)
}

// openArchive returns the archive, or nil if there is none. One in a folder is opened now, so
// that the operator does not start without it.
func (o *archiveOptions) openArchive(ctx context.Context, log logr.Logger) (*operator.Archive, error) {
	if o.archive == "" {
		return nil, nil
	}
	location, err := open.Parse(o.archive)
	if err != nil {
		return nil, err
	}
	limits, err := o.limits()
	if err != nil {
		return nil, err
	}
	a := &operator.Archive{Limits: limits, Open: func(ctx context.Context) (archive.Store, error) {
		store, recovered, err := open.Store(ctx, location)
		if err == nil && recovered != "" {
			log.Info("The last write to the archive was incomplete, and is dropped", "archive", location.String(), "details", recovered)
		}
		return store, err
	}}
	if !location.Shared() {
		a.Opened, err = a.Open(ctx)
	}
	return a, err
}

// checkReplicas returns an error if the archive is in a folder and the operator's Pod is one of
// several replicas: each would have an archive of its own, and only that of the leader is written.
func (o *archiveOptions) checkReplicas(ctx context.Context, client kubernetes.Interface, namespace string) error {
	if o.archive == "" {
		return nil
	}
	location, err := open.Parse(o.archive)
	if err != nil || location.Shared() {
		return err
	}
	if !inPod() {
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("get the host name: %w", err)
	}
	replicas, err := replicasOf(ctx, client, namespace, name)
	if apierrors.IsForbidden(err) {
		return nil // one folder is still opened by one process only
	}
	if err != nil {
		return fmt.Errorf("count the replicas of pod %s: %w", name, err)
	}
	if replicas > 1 {
		return fmt.Errorf("--archive=%s is for a single replica, and there are %d: set replicas to 1, or use s3://BUCKET/PREFIX", o.archive, replicas)
	}
	return nil
}

// inPod reports whether the operator runs in a Pod.
func inPod() bool {
	_, err := os.Stat(namespaceFile)
	return err == nil
}

// replicasOf returns the number of replicas that the controller of a Pod has to keep; 1 if it
// has none that says so.
func replicasOf(ctx context.Context, client kubernetes.Interface, namespace, name string) (int32, error) {
	pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 1, nil // a host's name need not be that of a Pod
	}
	if err != nil {
		return 0, fmt.Errorf("read pod: %w", err)
	}
	controller := metav1.GetControllerOf(pod)
	if controller == nil {
		return 1, nil
	}
	var replicas *int32
	switch controller.Kind {
	case "ReplicaSet":
		set, err := client.AppsV1().ReplicaSets(namespace).Get(ctx, controller.Name, metav1.GetOptions{})
		if err != nil {
			return 0, fmt.Errorf("read replica set: %w", err)
		}
		replicas = set.Spec.Replicas
	case "StatefulSet":
		set, err := client.AppsV1().StatefulSets(namespace).Get(ctx, controller.Name, metav1.GetOptions{})
		if err != nil {
			return 0, fmt.Errorf("read stateful set: %w", err)
		}
		replicas = set.Spec.Replicas
	}
	if replicas == nil {
		return 1, nil
	}
	return *replicas, nil
}
