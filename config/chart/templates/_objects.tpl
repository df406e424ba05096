{{/*
The objects of this chart, except the Deployment, are those for kustomize in config: "files" has links to their folders.
gleaner.objects prints the objects of some files, in the release's namespace and with its labels.
*/}}
{{- define "gleaner.objects" -}}
{{- $root := .root -}}
{{- $annotations := .annotations | default dict -}}
{{- $labels := include "gleaner.labels" $root | fromYaml -}}
{{- range $pattern := .files -}}
{{- range $path, $_ := $root.Files.Glob $pattern -}}
{{- $text := $root.Files.Get $path | replace "gleaner-system" $root.Release.Namespace -}}
{{- range $part := splitList "\n---\n" (print "\n" $text) -}}
{{- $object := fromYaml $part -}}
{{- if hasKey $object "Error" -}}
{{- fail (printf "%s: %s" $path $object.Error) -}}
{{- end -}}
{{- if $object -}}
{{- $_ := set $object.metadata "labels" (merge (dict) ($object.metadata.labels | default dict) $labels) -}}
{{- if hasKey ($object.spec | default dict) "template" -}}
{{- include "gleaner.pod" (dict "root" $root "pod" $object.spec.template.spec) -}}
{{- end -}}
{{- if $annotations -}}
{{- $_ := set $object.metadata "annotations" (merge (dict) ($object.metadata.annotations | default dict) $annotations) -}}
{{- end }}
---
{{ toYaml $object }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The image, as kustomize sets it. */}}
{{- define "gleaner.pod" -}}
{{- $image := .root.Values.image -}}
{{- range $container := .pod.containers -}}
{{- $_ := set $container "image" (include "gleaner.image" $.root) -}}
{{- if $image.pullPolicy -}}
{{- $_ := set $container "imagePullPolicy" $image.pullPolicy -}}
{{- end -}}
{{- end -}}
{{- if .root.Values.imagePullSecrets -}}
{{- $_ := set .pod "imagePullSecrets" .root.Values.imagePullSecrets -}}
{{- end -}}
{{- end -}}

{{- define "gleaner.hasTrust" -}}
{{- if or .Values.signatures.trustedSigners .Values.signatures.trustedRoot -}}true{{- end -}}
{{- end -}}

{{- define "gleaner.labels" -}}
app.kubernetes.io/name: gleaner
app.kubernetes.io/part-of: gleaner
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "gleaner.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* A single replica, if two could write at the same time. */}}
{{- define "gleaner.single" -}}
{{- if or (eq .Values.archive.storage "folder") (not .Values.leaderElection) -}}true{{- end -}}
{{- end -}}

{{- define "gleaner.replicas" -}}
{{- if kindIs "invalid" .Values.replicas -}}
{{ ternary 1 2 (eq (include "gleaner.single" .) "true") }}
{{- else -}}
{{ .Values.replicas | int }}
{{- end -}}
{{- end -}}

{{- define "gleaner.hasWebhooks" -}}
{{- if or (eq .Values.mode "companion") .Values.webhooks -}}true{{- end -}}
{{- end -}}
