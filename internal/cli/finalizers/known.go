package finalizers

import (
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubernetesFinalizers are finalizers of Kubernetes components, by name, or by prefix if the key ends in a
// slash.
var kubernetesFinalizers = map[string]struct{ owner, waits, do string }{
	metav1.FinalizerDeleteDependents: {
		"the garbage collector", "its blocking dependents to be deleted (foreground deletion)",
		"see what its dependents wait for; run gleaner explain for the list",
	},
	metav1.FinalizerOrphanDependents: {
		"the garbage collector", "the object's dependents to lose their references to it (orphan)",
		"check that a garbage collector is running: gleaner doctor",
	},
	"kubernetes.io/pvc-protection": {
		"kube-controller-manager (pvc-protection)", "the pods that use the claim to be deleted",
		"delete the pods that use it, listed by kubectl describe as Used By",
	},
	"kubernetes.io/pv-protection": {
		"kube-controller-manager (pv-protection)", "the claim that is bound to the volume to be deleted",
		"delete the PersistentVolumeClaim in its spec.claimRef",
	},
	"kubernetes.io/vac-protection": {
		"kube-controller-manager (vac-protection)", "the volumes and claims that use the class to be deleted", "change or delete those",
	},
	"kubernetes.io/pv-controller": {
		"kube-controller-manager (persistentvolume-binder)", "the disk behind the volume to be deleted", "see the events of the volume",
	},
	"external-provisioner.volume.kubernetes.io/finalizer": {
		"the volume's CSI driver (external-provisioner)", "the disk behind the volume to be deleted", "see the events of the volume and the driver's log",
	},
	"external-attacher/": {
		"the volume's CSI driver (external-attacher)", "the volume to be detached from its node", "see the VolumeAttachment's status and the driver's log",
	},
	"snapshot.storage.kubernetes.io/": {
		"the snapshot-controller", "snapshots that are bound to it or created from it to be finished or deleted", "see its status and events, and the snapshot-controller's log",
	},
	"service.kubernetes.io/load-balancer-cleanup": {
		"the cloud-controller-manager (service)", "the load balancer behind the Service to be deleted", "see the Service's events and the cloud-controller-manager's log",
	},
	"batch.kubernetes.io/job-tracking": {
		"kube-controller-manager (job)", "the Pod to be counted in its Job's status", "check that kube-controller-manager is running",
	},
	"customresourcecleanup.apiextensions.k8s.io": {
		"kube-apiserver", "all objects of this type to be deleted", "run gleaner stuck to see which of them are stuck",
	},
	"resource.kubernetes.io/delete-protection": {
		"kube-controller-manager (resource-claim)", "the pods that use the claim to be deleted", "delete those pods",
	},
	"networking.k8s.io/service-cidr-finalizer": {
		"kube-controller-manager (service-cidr)", "the IPAddresses in its range to be deleted", "delete the Services that use them",
	},
}

// kubernetesDomain matches other finalizers of Kubernetes and its projects, by domain.
var kubernetesDomain = regexp.MustCompile(`^([^/]*\.)?(kubernetes\.io|k8s\.io)(/|$)`)

// thirdParties are well-known third-party controllers, by a part of their finalizers.
var thirdParties = []struct{ part, owner string }{
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

// describeKubernetes reports whether a finalizer belongs to Kubernetes, and describes it.
func describeKubernetes(h *Finalizer) bool {
	for name, k := range kubernetesFinalizers {
		if h.Name == name || strings.HasSuffix(name, "/") && strings.HasPrefix(h.Name, name) {
			h.Kind, h.Owner, h.WaitsFor, h.Advice = Kubernetes, k.owner, k.waits, k.do
			return true
		}
	}
	if kubernetesDomain.MatchString(h.Name) {
		h.Kind, h.Owner = Kubernetes, "a component of Kubernetes"
		if h.AddedBy != "" {
			h.Owner += ", added by " + h.AddedBy
		}
		h.WaitsFor, h.Advice = "that component to remove it", "check that the component that adds it is running, and its log"
		return true
	}
	return false
}

// describeThirdParty describes the finalizer of another controller, by the field manager that added it.
func describeThirdParty(h *Finalizer, o Object) {
	h.Kind, h.Owner = ThirdParty, UnknownController
	if h.AddedBy != "" {
		h.Owner = h.AddedBy
	}
	for _, k := range thirdParties {
		if strings.Contains(h.Name, k.part) {
			h.Owner = k.owner
			break
		}
	}
	h.WaitsFor = "its controller to remove it"
	h.Advice = "check that its controller is running, and its log; if the controller was uninstalled: " + releaseCommand(o) + " --finalizer " + h.Name
}
