{{- define "ddpjob-cluster.labels" -}}
{{- range $label, $_ := .Values.commonLabels -}}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|version)$|rbac\\.authorization\\.k8s\\.io/)" $label -}}
{{- fail (printf "commonLabels: %s is set by the chart; leave it out" $label) -}}
{{- end -}}
{{- end -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* For objects that outlive the release: without the users' roles, nobody could see or delete the jobs that are kept. */}}
{{- define "ddpjob-cluster.kept" -}}
{{- if .Values.keep -}}
annotations:
  helm.sh/resource-policy: keep
{{- end -}}
{{- end -}}

{{/* Rights to see a job's pods, their logs and events. Kubernetes' own roles have them too; they are repeated for users
who have no other role. */}}
{{- define "ddpjob-cluster.lookRules" -}}
- apiGroups: [""]
  resources: [pods, events]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- end -}}

{{/* Whether what a job runs is new or has changed: anything in its spec, or that of its scale, but what only stops or
resumes it. */}}
{{- define "ddpjob-cluster.whatRunsHasChanged" -}}
oldObject == null
|| dyn(object.spec).exists(key, !(key in ['suspend', 'cancel']) && dyn(object.spec)[?key] != dyn(oldObject.spec)[?key])
|| dyn(oldObject.spec).exists(key, !(key in ['suspend', 'cancel']) && !(key in dyn(object.spec)))
{{- end -}}

{{/* Requests that say what a job runs. */}}
{{- define "ddpjob-cluster.jobRules" -}}
resourceRules:
  - apiGroups: [ddpjob.dev]
    apiVersions: ["*"]
    operations: [CREATE, UPDATE]
    resources: [ddpjobs, ddpjobs/scale]
{{- end -}}

{{/* Capabilities that give no access to the Kubernetes node: those of the Pod Security Standard Baseline, and what
training and its tools ask for: memory for RDMA, priorities of threads, stacks of other processes. */}}
{{- define "ddpjob-cluster.harmlessCapabilities" -}}
[AUDIT_WRITE, CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, MKNOD, NET_BIND_SERVICE, SETFCAP, SETGID, SETPCAP, SETUID,
SYS_CHROOT, IPC_LOCK, SYS_NICE, SYS_PTRACE]
{{- end -}}
