#!/usr/bin/env bash
# One node of the real plant. This script is the node's first process: when it ends, so does all that runs on the node.
#
# It is started outside of the node's namespaces, with the node's cgroups in CGROUPS, and starts itself again inside.
# Signal USR1 starts the kubelet, the first time or after it was killed; so the image store can be filled first. Signal
# USR2 starts a killed containerd again.
set -euo pipefail

source "$(dirname "$0")/../namespaces.sh"

# Called before /proc is mounted: until then, /proc still shows the switch's process.
connect() {
  ip link add eth0 type veth peer name "$NODE" netns "$SWITCH"
  nsenter --net="$SWITCH" ip link set "$NODE" master switch up
  ip address add "$ADDRESS/$PREFIX" dev eth0
  ip link set lo up
  ip link set eth0 up
  ip -batch - <<<"$ROUTES"
}

mount_own() {
  mount --make-rshared /
  mount --bind "$DIRECTORY/lib" /var/lib
  mount --bind "$DIRECTORY/log" /var/log
  mount -t tmpfs -o mode=755 run /run
  mount_kernel
}

# If a program ends, the node's own log says so, because that log is shown if the plant does not start.
run() {
  local log=$LOGS/$NODE-${1##*/}.log code=0
  "$@" >>"$log" 2>&1 || code=$?
  echo "$1 ended with $code. The end of $log:"
  tail -n 5 "$log"
}

start_containerd() {
  run containerd --config /var/lib/containerd.toml &
}

start_kubelet() {
  run kubelet --config /var/lib/kubelet.json --kubeconfig /var/lib/kubelet.kubeconfig --hostname-override "$NODE" \
    --node-ip "$ADDRESS" &
}

inside() {
  hostname "$NODE"
  connect
  mount_own
  trap start_kubelet USR1
  trap start_containerd USR2
  start_containerd
  run kube-proxy --config /var/lib/kube-proxy.json --hostname-override "$NODE" &
  run "$PYTHON" "$POLICIES" "$SERVER" "$NODE" /var/lib/ca.crt /var/lib/policies.pem &
  sleep infinity &
  local idle=$!
  while true; do wait $idle || true; done  # Bash reaps orphaned processes, and runs its traps, here.
}

"${1:-outside}"
