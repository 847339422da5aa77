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

{{/* The image. A registry that an umbrella chart names for all is that of a repository which names none itself: whose first
part is no host. */}}
{{- define "ddpjob-operator.image" -}}
{{- $parts := splitList "/" .Values.image.repository -}}
{{- $named := and (gt (len $parts) 1) (regexMatch "[.:]|^localhost$" (first $parts)) -}}
{{- with .Values.global.imageRegistry }}{{ if not $named }}{{ . }}/{{ end }}{{ end -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* Fails for values that the schema cannot tell to be wrong. */}}
{{- define "ddpjob-operator.check" -}}
{{- $selector := include "ddpjob-operator.selectorLabels" . | fromYaml -}}
{{- range $label, $_ := .Values.podLabels -}}
{{- if hasKey $selector $label -}}
{{- fail (printf "podLabels: %s selects the operator's pods and cannot be another; leave it out" $label) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.namespaces .Values.namespaceSelector -}}
{{- fail "namespaceSelector: namespaces are named already; leave one of the two out" -}}
{{- end -}}
{{/* What an umbrella chart says to its other charts comes here too. */}}
{{- if .Chart.IsRoot -}}
{{- range $name, $_ := omit .Values.global "imageRegistry" "imagePullSecrets" -}}
{{- fail (printf "global.%s: this chart reads imageRegistry and imagePullSecrets alone" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What selects the operator's pods. It must never change, and a job's NetworkPolicy knows the name. */}}
{{- define "ddpjob-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of all objects but pods: the version would roll them, though nothing in them has changed. */}}
{{- define "ddpjob-operator.labels" -}}
{{ include "ddpjob-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{/* The rights that the operator needs wherever it runs jobs. */}}
{{- define "ddpjob-operator.rules" -}}
- apiGroups: [ddpjob.dev]
  resources: [ddpjobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [ddpjob.dev]
  resources: [ddpjobs/status]
  verbs: [patch]
# Where the cluster enforces it, only who may update an owner's finalizers may make what blocks the owner's deletion.
- apiGroups: [ddpjob.dev]
  resources: [ddpjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create]
# Each job gets one of its own. The operator reads none, neither this nor others.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, delete]
# With `disruption: AfterCheckpoint` a job's pods are evicted only once it has saved.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create, patch]
# Where the cluster has them, its own scheduler places each gang as a whole.
- apiGroups: [scheduling.k8s.io]
  resources: [workloads, podgroups]
  verbs: [get, list, watch, create, delete]
# Where the cluster has Volcano, it places each gang of its pods as a whole.
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [get, list, watch, create, delete]
# Where the cluster has Kueue, jobs that name one of its queues are admitted by it.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
{{- end -}}

{{/* Binds the operator's service account. */}}
{{- define "ddpjob-operator.subjects" -}}
- kind: ServiceAccount
  name: {{ include "ddpjob-operator.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* What users see of a job beside itself. The roles of Kubernetes have these rights as well: they stand here for those
who have no other role. */}}
{{- define "ddpjob-operator.lookRules" -}}
- apiGroups: [""]
  resources: [pods, events]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- end -}}
