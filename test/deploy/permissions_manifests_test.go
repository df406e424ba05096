package deploy

// auditing makes the API server log the operator's requests.
const auditing = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    users: ["` + account + `"]
  - level: None`

// governed has one of each of Gleaner's resources, and each uses its permissions.
const governed = `
apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: frees}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
  fixed: {propagate: {decision: Orphan, dependents: [{kind: LimitRange, decision: Delete}]}}
  mode: Enforce
---
apiVersion: gleaner.dev/v1alpha1
kind: PolicyModule
metadata: {name: keeping, namespace: NAMESPACE}
spec:
  rego:
    inline: |
      package gleaner
      # The other collector would not delete in the foreground: it is for Gleaner to do.
      default collect := {"decision": "Delete", "delay": "1s", "propagation": "Foreground"}
      collect := {"decision": "Orphan"} if input.object.data.keep == "yes"
---
apiVersion: gleaner.dev/v1alpha1
kind: GCPolicy
metadata: {name: keeping, namespace: NAMESPACE}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: keeping}
  serviceAccount: {name: reader}
  mode: Enforce
---
apiVersion: gleaner.dev/v1alpha1
kind: PolicyModule
metadata: {name: done, namespace: NAMESPACE}
spec: {rego: {inline: "package gleaner\nfinalize := {\"decision\": \"Done\"}"}}
---
apiVersion: gleaner.dev/v1alpha1
kind: Finalizer
metadata: {name: done, namespace: NAMESPACE}
spec:
  resources: [{apiGroups: [""], resources: [podtemplates]}]
  module: {name: done}
  needs: Reference
  serviceAccount: {name: reader}
  attach: true
  mode: Enforce
---
apiVersion: gleaner.dev/v1alpha1
kind: ClusterPolicyModule
metadata: {name: done}
spec: {rego: {inline: "package gleaner\nfinalize := {\"decision\": \"Done\"}"}}
---
apiVersion: gleaner.dev/v1alpha1
kind: ClusterFinalizer
metadata: {name: done}
spec:
  finalizer: example.com/done
  resources: [{apiGroups: [""], resources: [resourcequotas]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
  module: {name: done}
  attach: true
  mode: Enforce
---
apiVersion: gleaner.dev/v1alpha1
kind: ClusterPause
metadata: {name: elsewhere}
spec: {policy: {kind: ClusterGCPolicy, name: elsewhere}}
---
apiVersion: gleaner.dev/v1alpha1
kind: Pause
metadata: {name: elsewhere, namespace: NAMESPACE}
spec: {policy: {kind: GCPolicy, name: elsewhere}}
---
apiVersion: gleaner.dev/v1alpha1
kind: ClusterDeletionBudget
metadata: {name: elsewhere}
spec: {resources: [{apiGroups: [example.com], resources: [elsewhere]}], maxDeletions: 1, window: 1h}
---
apiVersion: gleaner.dev/v1alpha1
kind: DeletionBudget
metadata: {name: elsewhere, namespace: NAMESPACE}
spec: {resources: [{apiGroups: [example.com], resources: [elsewhere]}], maxDeletions: 1, window: 1h}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: NAMESPACE}
rules: [{apiGroups: [""], resources: [configmaps, podtemplates], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: NAMESPACE}]`

// objects are owners and dependents: handling them requires each of the permissions.
const objects = `
{apiVersion: v1, kind: Secret, metadata: {name: owner, namespace: NAMESPACE}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: owner, namespace: NAMESPACE}}
---
{apiVersion: v1, kind: PodTemplate, metadata: {name: done, namespace: NAMESPACE}, template: {spec: {containers: [{name: a, image: a}]}}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: done, namespace: NAMESPACE}}`

const dependents = `
{apiVersion: v1, kind: LimitRange, metadata: {name: excepted, namespace: NAMESPACE, ownerReferences: [{apiVersion: v1, kind: Secret, name: owner, uid: SECRET}]}}
---
{apiVersion: v1, kind: LimitRange, metadata: {name: shared, namespace: NAMESPACE, ownerReferences: [
  {apiVersion: v1, kind: Secret, name: owner, uid: SECRET}, {apiVersion: v1, kind: ServiceAccount, name: reader, uid: READER}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, namespace: NAMESPACE, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: CONFIGMAP}]}, data: {keep: "yes"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: goes, namespace: NAMESPACE, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: CONFIGMAP}]}, data: {keep: "no"}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: freed, namespace: NAMESPACE, ownerReferences: [{apiVersion: v1, kind: Secret, name: owner, uid: SECRET}]}}`
