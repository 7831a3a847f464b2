{{/* Names, and what several templates say alike. */}}
{{- define "ingero.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ingero.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "ingero.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "ingero.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ingero.selector" -}}
app.kubernetes.io/name: {{ include "ingero.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "ingero.labels" -}}
{{ include "ingero.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "ingero.account" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "ingero.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "ingero.serverName" -}}
{{- default (printf "%s.%s.svc" (include "ingero.fullname" .) .Release.Namespace) .Values.certificates.serverName -}}
{{- end -}}

{{- define "ingero.certificate" -}}
{{- default (printf "%s-tls" (include "ingero.fullname" .)) .Values.certificates.secret -}}
{{- end -}}

{{- define "ingero.token" -}}
{{- default (printf "%s-token" (include "ingero.fullname" .)) .Values.prometheus.tokenSecret -}}
{{- end -}}

{{/* Folder in the container by secret: what is mounted, and only that. */}}
{{- define "ingero.secrets" -}}
{{- $found := dict -}}
{{- with .Values -}}
{{- if .prometheus.enabled -}}
{{- $_ := set $found "server" (include "ingero.certificate" $) -}}
{{- $_ := set $found "token" (include "ingero.token" $) -}}
{{- if .certificates.clientCASecret }}{{ $_ := set $found "clients" .certificates.clientCASecret }}{{ end -}}
{{- end -}}
{{- if .otlp.enabled -}}
{{- if .otlp.headersSecret }}{{ $_ := set $found "otlp-headers" .otlp.headersSecret }}{{ end -}}
{{- if .otlp.caSecret }}{{ $_ := set $found "otlp-ca" .otlp.caSecret }}{{ end -}}
{{- if .otlp.clientSecret }}{{ $_ := set $found "otlp-client" .otlp.clientSecret }}{{ end -}}
{{- end -}}
{{- if .fleet.enabled -}}
{{- if .fleet.tokenSecret }}{{ $_ := set $found "fleet-token" .fleet.tokenSecret }}{{ end -}}
{{- if .fleet.caSecret }}{{ $_ := set $found "fleet-ca" .fleet.caSecret }}{{ end -}}
{{- if .fleet.clientSecret }}{{ $_ := set $found "fleet-client" .fleet.clientSecret }}{{ end -}}
{{- end -}}
{{- if and .kubelet.enabled .kubelet.caSecret }}{{ $_ := set $found "kubelet-ca" .kubelet.caSecret }}{{ end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* ingero.yaml. What `config` says counts. */}}
{{- define "ingero.config" -}}
{{- $at := "/etc/ingero/secrets" -}}
{{- $made := dict "agent" (dict "max_db" .Values.state.maxSize) "log" (dict "level" "info") -}}
{{- with .Values.kubelet }}{{ if .enabled -}}
{{- $_ := set $made "kubernetes" (dict "verify" .verify) -}}
{{- if .caSecret }}{{ $_ := set $made.kubernetes "ca" (printf "%s/kubelet-ca/ca.crt" $at) }}{{ end -}}
{{- end }}{{ end -}}
{{- if .Values.prometheus.enabled -}}
{{- $_ := set $made "prometheus" (dict "address" (printf ":%v" .Values.prometheus.port)) -}}
{{- $server := dict "cert" (printf "%s/server/tls.crt" $at) "key" (printf "%s/server/tls.key" $at) -}}
{{- $_ := set $server "token_file" (printf "%s/token/token" $at) -}}
{{- $_ := set $server "allowed_hosts" (list (include "ingero.serverName" .)) -}}
{{- if .Values.certificates.clientCASecret }}{{ $_ := set $server "client_ca" (printf "%s/clients/ca.crt" $at) }}{{ end -}}
{{- $_ := set $made "server" $server -}}
{{- end -}}
{{- with .Values.otlp }}{{ if .enabled -}}
{{- $otlp := dict "endpoint" (required "otlp.enabled needs otlp.endpoint" .endpoint) "protocol" .protocol -}}
{{- if and .headersSecret (hasPrefix "http://" .endpoint) (not (regexMatch "^http://(localhost|127[.]|\\[::1\\])" .endpoint)) -}}
{{- fail "otlp.headersSecret would be sent readable: otlp.endpoint must be https://" -}}
{{- end -}}
{{- if .headersSecret }}{{ $_ := set $otlp "headers_file" (printf "%s/otlp-headers/headers" $at) }}{{ end -}}
{{- if .caSecret }}{{ $_ := set $otlp "ca" (printf "%s/otlp-ca/ca.crt" $at) }}{{ end -}}
{{- if .clientSecret -}}
{{- $_ := set $otlp "client_cert" (printf "%s/otlp-client/tls.crt" $at) -}}
{{- $_ := set $otlp "client_key" (printf "%s/otlp-client/tls.key" $at) -}}
{{- end -}}
{{- $_ := set $made "otlp" $otlp -}}
{{- end }}{{ end -}}
{{- with .Values.fleet }}{{ if .enabled -}}
{{- $told := dict "address" (required "fleet.enabled needs fleet.address" .address) "spool" "/var/lib/ingero/fleet-spool" -}}
{{- if .cluster }}{{ $_ := set $told "cluster" .cluster }}{{ end -}}
{{- if .tokenSecret }}{{ $_ := set $told "token_file" (printf "%s/fleet-token/token" $at) }}{{ end -}}
{{- if .caSecret }}{{ $_ := set $told "ca_cert" (printf "%s/fleet-ca/ca.crt" $at) }}{{ end -}}
{{- if .clientSecret -}}
{{- $_ := set $told "client_cert" (printf "%s/fleet-client/tls.crt" $at) -}}
{{- $_ := set $told "client_key" (printf "%s/fleet-client/tls.key" $at) -}}
{{- end -}}
{{- $_ := set $made "collector" $told -}}
{{- end }}{{ end -}}
{{- toYaml (mustMergeOverwrite $made (deepCopy .Values.config)) -}}
{{- end -}}
