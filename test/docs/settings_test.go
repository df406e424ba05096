package docs

import "github.com/gleaner-dev/gleaner/devcluster"

// setting is the situation of a document's reader, and values for placeholders.
// The default is the control plane of "gleaner-dev dev" and the checkout.
type setting struct {
	own     *devcluster.Options // start a separate control plane with these options, without Gleaner
	folder  string              // working directory, relative to the root
	before  string              // commands to type first
	replace []string            // pairs of text in the document and its replacement
	after   string              // commands to clean up
}

// completeCluster is a control plane as users have it who bring their own: with all
// controllers.
var completeCluster = &devcluster.Options{}

// operatorReplacements makes commands connect to the operator of "gleaner-dev dev", which is not in a pod.
var operatorReplacements = []string{
	"gleaner explain ", "gleaner explain --endpoint http://ADDRESS ",
	"gleaner doctor", "check gleaner doctor --endpoint http://ADDRESS",
}

// checkFunction accepts the exit code for problems: "gleaner-dev dev" has no pods, for example.
const checkFunction = `check() { "$@" || [ $? = 1 ]; }
`

// goneFunction waits until objects are deleted.
const goneFunction = `gone() { until [ -z "$(kubectl get "$@" --ignore-not-found -o name)" ]; do sleep 0.5; done; }
`

// createClaim creates a claim that a policy of the library protects.
const createClaim = `kubectl apply -f - <<'END'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
END`

// deleteClaim deletes it, once the API server has noticed that nothing protects it any more.
const deleteClaim = `until kubectl delete pvc data; do sleep 0.5; done`

// removeNodeAgent removes what runs on nodes, of which the control plane has none. The types stay: clients have them in their caches.
const removeNodeAgent = `kubectl delete noderetentionpolicies --all
kubectl delete clusterrole/gleaner-node clusterrole/gleaner-node-retention-viewer clusterrole/gleaner-node-retention-editor clusterrolebinding/gleaner-node
kubectl delete validatingadmissionpolicybinding/gleaner-node-own-node validatingadmissionpolicy/gleaner-node-own-node
kubectl delete namespace gleaner-node`

var settings = map[string]setting{
	"docs/tutorials/4-deploy.md": {own: completeCluster},

	"docs/cli.md": {
		before: checkFunction + `mkdir -p ~/.local/bin && export PATH=~/.local/bin:$PATH
dot() { cat; }
for name in shop preview-42 ops gleaner-system; do kubectl create namespace $name; done
kubectl create deployment web --image=nginx -n shop
cp examples/hello-policy/resources.yaml my-policies.yaml
cp cmd/gleaner/testdata/ask/*.yaml .`,
		replace: append([]string{"rbac --collector companion -f policies.yaml", "rbac --collector companion -f test/inspect/testdata/shop.yaml"}, operatorReplacements...),
		after: `kubectl delete clusterrolebinding asker-debug asker-view
kubectl delete clusterrole,clusterrolebinding gleaner
kubectl delete namespace shop ops gleaner-system`,
	},
	"docs/companion.md": {own: completeCluster},
	"docs/finalizers.md": {
		before: `kubectl create namespace shop
kubectl apply -f - <<'END'
apiVersion: gleaner.dev/v1alpha1
kind: Finalizer
metadata: {name: deregister, namespace: shop}
spec:
  resources: [{apiGroups: [""], resources: [services]}]
  needs: Reference
  module: {name: deregister}
---
apiVersion: gleaner.dev/v1alpha1
kind: ClusterFinalizer
metadata: {name: remove-bucket}
spec:
  finalizer: example.com/bucket
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: remove-bucket}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, finalizers: [shop.gleaner.dev/deregister]}
spec: {ports: [{port: 80}]}
END
kubectl delete service web -n shop --wait=false`,
		after: `kubectl patch service web -n shop --type=merge -p '{"metadata":{"finalizers":null}}'
kubectl delete finalizers.gleaner.dev,services --all -n shop
kubectl delete clusterfinalizer remove-bucket
kubectl delete namespace shop`,
	},
	"docs/howto/undo-a-deletion.md": {
		before: checkFunction + `kubectl create namespace shop
kubectl apply -f - <<'END'
apiVersion: gleaner.dev/v1alpha1
kind: ArchivePolicy
metadata: {name: all, namespace: shop}
spec:
  resources: [{apiGroups: [apps], resources: [deployments, replicasets]}]
  ttl: 24h
END
kubectl wait --for=condition=Archiving archivepolicy/all -n shop
kubectl create deployment web --image=nginx -n shop
until [ -n "$(kubectl get replicasets -n shop -o name)" ]; do sleep 0.5; done
kubectl delete deployment web -n shop
until [ -z "$(kubectl get replicasets -n shop -o name)" ]; do sleep 0.5; done`,
		replace: []string{
			"gleaner restore deployment/web -n shop --dry-run", "gleaner restore deployment/web -n shop --dry-run",
			"gleaner restore deployment/web -n shop", "gleaner restore deployment/web -n shop --yes",
			"gleaner archive diff ", "check gleaner archive diff ", // what the API server sets is different
		},
		after: `until kubectl get replicasets -n shop -o name | grep replicaset.apps/web-; do sleep 0.5; done
kubectl delete archivepolicy all -n shop
kubectl delete namespace shop`,
	},
	"docs/howto/backtest-a-policy.md": {
		before: checkFunction + `kubectl create namespace shop
kubectl create configmap owner -n shop
uid=$(kubectl get configmap owner -n shop -o jsonpath={.metadata.uid})
kubectl apply -f - <<END
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: $uid}]}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
END
kubectl delete configmap owner -n shop
until [ -z "$(kubectl get pvc data -n shop --ignore-not-found -o name)" ]; do sleep 0.5; done
cat >policy.yaml <<'END'
apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: keep-volumes}
spec:
  resources: [{apiGroups: [""], resources: [persistentvolumeclaims]}]
  fixed: {collect: {decision: Orphan}}
END`,
		replace: []string{"gleaner replay -f policy.yaml --since 24h", "check gleaner replay -f policy.yaml --since 24h | tee replay.txt"},
		after: `grep 'PersistentVolumeClaim shop/data .*KeptByPolicy by ClusterGCPolicy keep-volumes' replay.txt
kubectl delete namespace shop`,
	},
	"docs/howto/follow-a-deletion.md": {after: "kubectl delete namespace shop"},
	"docs/howto/limit-deletions.md": {
		before: `kubectl create namespace shop
kubectl apply -f - <<'END'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-0, namespace: shop}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: gleaner.dev/v1alpha1
kind: ClusterDeletionBudget
metadata: {name: volumes}
spec: {resources: [{apiGroups: [""], resources: [persistentvolumeclaims]}], maxDeletions: 5%, window: 24h, onExhausted: Trip}
---
apiVersion: gleaner.dev/v1alpha1
kind: DeletionBudget
metadata: {name: nightly, namespace: shop}
spec: {resources: [{apiGroups: [""], resources: [persistentvolumeclaims]}], maxDeletions: 10, window: 1h}
END`,
		replace: append([]string{"gleaner records ", "gleaner records --endpoint http://ADDRESS "}, operatorReplacements...),
		after: `kubectl delete clusterdeletionbudget volumes
kubectl delete namespace shop`,
	},
	"docs/howto/keep-the-last-three.md": {
		before: `kubectl create namespace ci
kubectl create job release-1 -n ci --image=example.com/none`,
		after: "kubectl delete namespace ci",
	},
	"docs/howto/free-disk-space.md":     {after: removeNodeAgent},
	"docs/node-retention.md":            {after: removeNodeAgent},
	"examples/node-retention/README.md": {after: removeNodeAgent},
	"docs/howto/delete-preview-namespaces.md": {
		before: "kubectl create namespace pr-17",
		after: `kubectl delete clusterretentionpolicy preview-namespaces
kubectl delete namespace pr-17`,
	},
	"docs/retention.md": {
		before:  "kubectl create namespace ci",
		replace: []string{"gleaner records ", "gleaner records --endpoint http://ADDRESS "},
		after:   "kubectl delete namespace ci",
	},
	"examples/retention/README.md": {
		before: "kubectl create namespace ci",
		after:  "kubectl delete namespace ci",
	},
	"docs/ui.md": {after: "kubectl delete -k config/ui --wait=false"},
	"docs/howto/protect-objects.md": {
		before: `kubectl apply -f - <<'END'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: database, labels: {data: precious}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: protect-data}
spec:
  resources: [{apiGroups: [""], resources: [persistentvolumeclaims]}]
  objectSelector: {matchLabels: {data: precious}}
  fixed:
    protect: {decision: Deny, reason: "it has data=precious: back it up, then run kubectl label pvc NAME data-"}
  mode: Enforce
END
until ! kubectl delete pvc database --dry-run=server; do sleep 0.5; done`,
		after: `kubectl delete clustergcpolicy protect-data
until kubectl delete pvc database; do sleep 0.5; done`,
	},
	"docs/howto/pause-deletions.md": {
		before:  checkFunction,
		replace: operatorReplacements,
	},
	"docs/howto/switch-the-collector-off.md": {own: &devcluster.Options{Controllers: devcluster.WithoutCollector()}},
	"docs/install.md": {
		own:     completeCluster,
		replace: []string{"former=", "kubectl create secret generic gleaner-state-keys -n gleaner-system --from-literal=current=$(head -c 32 /dev/urandom | base64)\nformer="},
		before:  `until kubectl get serviceaccount default; do sleep 0.5; done`,
	},
	"docs/policies.md": {
		before: `kubectl create namespace shop
kubectl create configmap settings -n shop
kubectl apply -f - <<'END'
apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: keep-claims}
spec:
  resources: [{apiGroups: [""], resources: [persistentvolumeclaims]}]
  fixed: {collect: {decision: Orphan}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
END
cp examples/hello-policy/policy.rego .
sed 's/name: hello/name: by-label/' examples/hello-policy/resources.yaml | awk '/^---/ {n++} n < 2' >module.yaml
kubectl apply -f module.yaml
kubectl wait --for=condition=Enforcing clustergcpolicy/by-label`,
		replace: append([]string{"gleaner test . ", "cd examples/hello-policy && gleaner test . "}, operatorReplacements...),
		after: `kubectl delete clustergcpolicies,clusterpolicymodules --all
kubectl delete pvc data
kubectl delete namespace shop`,
	},
	"docs/records.md": {
		before: `kubectl create namespace shop
cp examples/hello-policy/policy.rego .
sed 's/configmaps/persistentvolumeclaims/' examples/hello-policy/resources.yaml | awk '/^---/ {n++} n < 2' | kubectl apply -f -
kubectl wait --for=condition=Enforcing clustergcpolicy/hello
kubectl create configmap owner -n shop
kubectl apply -f - <<END
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
  namespace: shop
  labels: {keep: "true"}
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: $(kubectl get configmap owner -n shop -o jsonpath={.metadata.uid})}]
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
END
kubectl delete configmap owner -n shop
until [ -z "$(kubectl get pvc data -n shop -o jsonpath={.metadata.ownerReferences})" ]; do sleep 0.5; done`,
		replace: operatorReplacements,
		after: `kubectl delete clustergcpolicies,clusterpolicymodules --all
kubectl delete namespace shop`,
	},
	"docs/troubleshooting.md": {
		before: checkFunction + `kubectl create namespace shop
kubectl create configmap data -n shop
kubectl create deployment web --image=nginx -n shop
kubectl config set-context --current --namespace=shop
kubectl apply -f - <<'END'
apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  fixed: {collect: {decision: Orphan}}
---
apiVersion: gleaner.dev/v1alpha1
kind: Finalizer
metadata: {name: deregister, namespace: shop}
spec:
  resources: [{apiGroups: [""], resources: [services]}]
  needs: Reference
  module: {name: deregister}
---
apiVersion: gleaner.dev/v1alpha1
kind: PolicyModule
metadata: {name: deregister, namespace: shop}
spec: {rego: {inline: "package gleaner\n\nfinalize := {\"decision\": \"Done\"}"}}
END`,
		replace: append([]string{
			"KIND/NAME", "configmap/data", "KIND/OWNER", "deployment/web", "get KIND NAME", "get configmap data",
			"clustergcpolicy NAME", "clustergcpolicy keep", "finalizer.gleaner.dev NAME -n NAMESPACE", "finalizer.gleaner.dev deregister -n shop",
			"policymodule NAME -n NAMESPACE", "policymodule deregister -n shop",
		}, operatorReplacements...),
		after: `kubectl config set-context --current --namespace=default
kubectl delete clustergcpolicies --all
kubectl delete namespace shop`,
	},
	"examples/README.md":                              {replace: []string{"…/gleaner", "TREE"}, after: "go vet ."},
	"sdk/go/README.md":                                {before: "gleaner module new --lang go demo && cd demo"},
	"sdk/rego/README.md":                              {before: "gleaner module new --lang rego demo && cd demo"},
	"policies/library/approval/README.md":             {before: createClaim, after: deleteClaim},
	"policies/library/lien/README.md":                 {before: createClaim, after: deleteClaim},
	"policies/library/orphan-by-annotation/README.md": {before: "kubectl create configmap results", after: "kubectl delete configmap results"},
	"policies/library/protect-namespaces/README.md":   {before: "kubectl create namespace shop", after: "kubectl delete namespace shop"},

	"examples/backup-before-delete/README.md": {
		folder: "examples/backup-before-delete",
		after:  "kubectl delete configmap colors; kubectl delete -k deploy",
	},
	"examples/bucket-finalizer/README.md": {
		folder: "examples/bucket-finalizer",
		before: goneFunction,
		after:  "kubectl delete -k local",
	},
	"examples/dns-finalizer/README.md": {
		folder: "examples/dns-finalizer",
		after:  "kubectl delete -k local",
	},
	"examples/drain-before-delete/README.md": {
		folder: "examples/drain-before-delete",
		after:  "kill %1 || true; kubectl delete -k deploy; kubectl delete -f sample.yaml --ignore-not-found",
	},
	"examples/hello-policy/README.md": {
		folder: "examples/hello-policy",
		after:  "kubectl delete configmap kept; kubectl delete -f resources.yaml",
	},
}
