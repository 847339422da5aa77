#!/usr/bin/env bash
# One node of the real plant, first and last process of it: whatever runs on the node is gone once this is.
#
# It is started outside of the node's namespaces, with the node's cgroups in CGROUPS, and starts itself again inside.
# Signal USR1 starts the kubelet; so somebody can fill the image store before, and revive a kubelet that was killed. USR2
# revives containerd.
set -euo pipefail

source "$(dirname "$0")/../namespaces.sh"

# Through the door that is still open: /proc shows the switch's process until the node's own takes its place.
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

# Should a program end, the node's own log says so: that is the one shown when the plant does not come up.
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
  while true; do wait $idle || true; done  # Bash takes in what other processes leave behind, and its traps run here.
}

"${1:-outside}"
