package whose

import (
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// known are finalizers of Kubernetes' own components, by name or by what the name
// begins with, if that ends in a slash.
var known = map[string]struct{ owner, waits, do string }{
	metav1.FinalizerDeleteDependents: {
		"the garbage collector", "the dependents that block it to be gone (foreground deletion)",
		"see what its dependents wait for: gleaner explain says which they are",
	},
	metav1.FinalizerOrphanDependents: {
		"the garbage collector", "the object's dependents to lose their references to it (orphan)",
		"see that a garbage collector runs: gleaner doctor",
	},
	"kubernetes.io/pvc-protection": {
		"kube-controller-manager (pvc-protection)", "the pods that use the claim to be gone",
		"delete the pods that use it: kubectl describe names them under Used By",
	},
	"kubernetes.io/pv-protection": {
		"kube-controller-manager (pv-protection)", "the claim that is bound to the volume to be gone",
		"delete the PersistentVolumeClaim in its spec.claimRef",
	},
	"kubernetes.io/vac-protection": {
		"kube-controller-manager (vac-protection)", "the volumes and claims that use the class to be gone", "change or delete those",
	},
	"kubernetes.io/pv-controller": {
		"kube-controller-manager (persistentvolume-binder)", "the disk behind the volume to be deleted", "see the events of the volume",
	},
	"external-provisioner.volume.kubernetes.io/finalizer": {
		"the volume's CSI driver (external-provisioner)", "the disk behind the volume to be deleted", "see the events of the volume, and the driver's log",
	},
	"external-attacher/": {
		"the volume's CSI driver (external-attacher)", "the volume to be detached from its node", "see the VolumeAttachment's status, and the driver's log",
	},
	"snapshot.storage.kubernetes.io/": {
		"the snapshot-controller", "snapshots that are bound to it, or made of it, to be finished or gone", "see its status and events, and the snapshot-controller's log",
	},
	"service.kubernetes.io/load-balancer-cleanup": {
		"the cloud-controller-manager (service)", "the load balancer behind the Service to be deleted", "see the Service's events, and the cloud-controller-manager's log",
	},
	"batch.kubernetes.io/job-tracking": {
		"kube-controller-manager (job)", "the Pod to be counted in its Job's status", "see that kube-controller-manager runs",
	},
	"customresourcecleanup.apiextensions.k8s.io": {
		"kube-apiserver", "all objects of this type to be gone", "see which of them are stuck: gleaner stuck",
	},
	"resource.kubernetes.io/delete-protection": {
		"kube-controller-manager (resource-claim)", "the pods that use the claim to be gone", "delete those pods",
	},
	"networking.k8s.io/service-cidr-finalizer": {
		"kube-controller-manager (service-cidr)", "the IPAddresses of its range to be gone", "delete the Services that have them",
	},
}

// kubernetesOwn is the domain of what else belongs to Kubernetes or its projects.
var kubernetesOwn = regexp.MustCompile(`^([^/]*\.)?(kubernetes\.io|k8s\.io)(/|$)`)

// others are well-known controllers outside of Kubernetes, by what their finalizers
// contain.
var others = []struct{ part, owner string }{
	{"argocd.argoproj.io", "Argo CD"},
	{"fluxcd.io", "Flux"},
	{"crossplane.io", "Crossplane"},
	{"cluster.x-k8s.io", "Cluster API"},
	{"cert-manager.io", "cert-manager"},
	{"cattle.io", "Rancher"},
	{"istio.io", "Istio"},
	{"longhorn.io", "Longhorn"},
	{"knative.dev", "Knative"},
	{"karpenter.sh", "Karpenter"},
	{"cilium.io", "Cilium"},
	{"rook.io", "Rook"},
	{"tekton.dev", "Tekton"},
	{"gateway.networking.k8s.io", "the controller of its GatewayClass"},
	{"elbv2.k8s.aws", "the AWS Load Balancer Controller"},
	{"vpcresources.k8s.aws", "the Amazon VPC resource controller"},
}

// kubernetes tells whether a finalizer is Kubernetes' own.
func kubernetes(h *Holder) bool {
	for name, k := range known {
		if h.Finalizer == name || strings.HasSuffix(name, "/") && strings.HasPrefix(h.Finalizer, name) {
			h.Kind, h.Owner, h.Waits, h.Do = Kubernetes, k.owner, k.waits, k.do
			return true
		}
	}
	if kubernetesOwn.MatchString(h.Finalizer) {
		h.Kind, h.Owner = Kubernetes, "a component of Kubernetes"
		if h.PlacedBy != "" {
			h.Owner += ", put there by " + h.PlacedBy
		}
		h.Waits, h.Do = "that component to see to it", "see that what puts it there runs, and its log"
		return true
	}
	return false
}

// stranger is somebody else: what is known of them is who wrote the finalizer.
func stranger(h *Holder, o Object) {
	h.Kind, h.Owner = Stranger, Unnamed
	if h.PlacedBy != "" {
		h.Owner = h.PlacedBy
	}
	for _, k := range others {
		if strings.Contains(h.Finalizer, k.part) {
			h.Owner = k.owner
			break
		}
	}
	h.Waits = "whoever serves it to take it off"
	h.Do = "see that the controller that serves it runs, and its log; if it is gone for good: " + releasing(o) + " --finalizer " + h.Finalizer
}
