{{/* Name of everything that is installed. */}}
{{- define "ddpjob-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ddpjob-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "ddpjob-operator.fullname" .) -}}
{{- else -}}
{{- required "serviceAccount.name: name the account to use, or let the chart make one with serviceAccount.create=true" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The image. An umbrella chart's registry is put before a repository that names none itself: one whose first part is no
host. */}}
{{- define "ddpjob-operator.image" -}}
{{- $parts := splitList "/" .Values.image.repository -}}
{{- $named := and (gt (len $parts) 1) (regexMatch "[.:]|^localhost$" (first $parts)) -}}
{{- if and $named .Values.image.registry -}}
{{- fail (printf "image.registry: image.repository begins with a registry already, %s; leave one of the two out" (first $parts)) -}}
{{- end -}}
{{- with $named | ternary "" (.Values.image.registry | default .Values.global.imageRegistry) }}{{ . }}/{{ end -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* Keys of labels and annotations that objects of a job never get from elsewhere, as a pattern; the operator refuses them
too. */}}
{{- define "ddpjob-operator.reserved" -}}
^(([^/]*\.)?(kubernetes\.io|k8s\.io|x-k8s\.io|argoproj\.io|ddpjob\.dev)|([^/]*\.)?(argocd|helm)\.[^/]*)/
{{- end -}}

{{/* Fails for wrong values that the schema cannot detect. */}}
{{- define "ddpjob-operator.check" -}}
{{- include "ddpjob-operator.checkType" . -}}
{{- $selector := include "ddpjob-operator.selectorLabels" . | fromYaml -}}
{{- range $value := list "podLabels" "commonLabels" -}}
{{- range $label, $_ := get $.Values $value -}}
{{- if hasKey $selector $label -}}
{{- fail (printf "%s: %s selects the operator's pods and cannot be another; leave it out" $value $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $label, $_ := .Values.commonLabels -}}
{{- if or (eq $label "app.kubernetes.io/version") (regexMatch "^rbac\\.authorization\\.k8s\\.io/" $label) -}}
{{- fail (printf "commonLabels: %s is set by the chart; leave it out" $label) -}}
{{- end -}}
{{- end -}}
{{- range .Values.env -}}
{{- if eq .name "POD_NAMESPACE" -}}
{{- fail "env: POD_NAMESPACE is set by the chart; leave it out" -}}
{{- end -}}
{{- end -}}
{{- range $key := concat (keys .Values.jobMetadata.labels | sortAlpha) .Values.jobMetadata.keys -}}
{{- $describes := regexMatch "^app\\.kubernetes\\.io/(part-of|component|version)$" $key -}}
{{- if and (regexMatch (include "ddpjob-operator.reserved" $) $key) (not $describes) -}}
{{- fail (printf "jobMetadata: %s is reserved: tools recognise a single object by it, not several" $key) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.namespaces .Values.namespaceSelector -}}
{{- fail "namespaceSelector: namespaces are named already; leave one of the two out" -}}
{{- end -}}
{{/* Not checked in an umbrella chart, whose `global` may also hold values for its other charts. */}}
{{- if .Chart.IsRoot -}}
{{- range $name, $_ := omit .Values.global "imageRegistry" "imagePullSecrets" -}}
{{- fail (printf "global.%s: this chart reads imageRegistry and imagePullSecrets alone" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails if the type and the users' roles, which were a part of this chart once, are still asked of it, or if an upgrade
would take away a type that this release has brought, and thereby every job. A release of this chart marks its Role for
the Lease; only without the mark is the type looked up, which those who install for some namespaces may not be allowed
to read. */}}
{{- define "ddpjob-operator.checkType" -}}
{{- $former := dict "crds" .Values.crds "rbac.userRoles" .Values.rbac.userRoles "rbac.debugRole" .Values.rbac.debugRole -}}
{{- range $name, $value := $former -}}
{{- if not (kindIs "invalid" $value) -}}
{{- fail (printf "%s: the DDPJob type and its users' roles are in the chart ddpjob-cluster now; first install that with --take-ownership, then leave this value out with --set %s=null" $name $name) -}}
{{- end -}}
{{- end -}}
{{- if .Release.IsUpgrade -}}
{{- $role := lookup "rbac.authorization.k8s.io/v1" "Role" .Release.Namespace (printf "%s-lease" (include "ddpjob-operator.fullname" .)) -}}
{{- if not (dig "metadata" "annotations" "ddpjob.dev/type-of" "" ($role | default dict)) -}}
{{- $type := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "ddpjobs.ddpjob.dev" -}}
{{- $owner := dig "metadata" "annotations" dict ($type | default dict) -}}
{{- $names := list (get $owner "meta.helm.sh/release-namespace") (get $owner "meta.helm.sh/release-name") -}}
{{- if eq (join "/" $names) (printf "%s/%s" .Release.Namespace .Release.Name) -}}
{{- fail "the DDPJob type still belongs to this release, whose chart no longer has it; first hand it over: helm install ddpjob-cluster charts/ddpjob-cluster --take-ownership" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the operator's pods. They must never change; the NetworkPolicies of jobs use the name too. */}}
{{- define "ddpjob-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of all objects but pods: in a pod template each new version would replace the pods, even if nothing else has
changed. */}}
{{- define "ddpjob-operator.labels" -}}
{{ include "ddpjob-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The rights that the operator needs wherever it runs jobs. */}}
{{- define "ddpjob-operator.rules" -}}
- apiGroups: [ddpjob.dev]
  resources: [ddpjobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [ddpjob.dev]
  resources: [ddpjobs/status]
  verbs: [patch]
# For the owner references of pods and other objects: with the admission plugin OwnerReferencesPermissionEnforcement, only
# those who may update the owner's finalizers may create objects that block its deletion.
- apiGroups: [ddpjob.dev]
  resources: [ddpjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create]
# Each job gets a Secret. The operator cannot read any Secret, not even these.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, delete]
# With `disruption: AfterCheckpoint` a job's pods can be evicted only after it has saved a checkpoint.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create, patch]
# Defaults for jobs may depend on the labels of the jobs' namespace.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
# Where the cluster serves these, Kubernetes' own scheduler places each gang as a whole.
- apiGroups: [scheduling.k8s.io]
  resources: [workloads, podgroups]
  verbs: [get, list, watch, create, delete]
# Where the cluster has Volcano, it places each gang as a whole, if the gang's pods name it as their scheduler.
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [get, list, watch, create, delete]
# Where the cluster has Kueue, it admits the jobs that name one of its queues.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
{{- end -}}

{{/* The operator's service account, as the subject of a role binding. */}}
{{- define "ddpjob-operator.subjects" -}}
- kind: ServiceAccount
  name: {{ include "ddpjob-operator.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
