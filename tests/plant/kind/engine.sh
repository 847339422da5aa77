#!/usr/bin/env bash
# A docker engine in namespaces of its own. This script is their first process: when it ends, so does all that they run.
#
# It is started outside of these namespaces, with the engine's cgroups in CGROUPS, and starts itself again inside. The
# engine is not connected to the machine's network: to talk to its containers, enter its network namespace.
set -euo pipefail

source "$(dirname "$0")/../namespaces.sh"

# Keeps from the machine what docker writes into these places, such as its key and a folder for kernel modules.
mount_own() {
  local place
  mount --make-rprivate /
  mount -t tmpfs -o mode=755 run /run
  for place in /etc /usr/lib; do
    mkdir -p "/run/own$place" "/run/work$place"
    mount -t overlay -o "lowerdir=$place,upperdir=/run/own$place,workdir=/run/work$place" overlay "$place"
  done
  mkdir -p /lib/modules
  mount_kernel
  mount --make-rshared /
}

# dockerd asks its runtime for a container's life; the name servers of the machine cannot be reached from here.
inside() {
  hostname "$NAME"
  mount_own
  ip link set lo up
  : >/etc/resolv.conf
  containerd --config "$DIRECTORY/containerd.toml" >>"$LOGS/containerd.log" 2>&1 &
  dockerd --config-file "$DIRECTORY/docker.json" >>"$LOGS/dockerd.log" 2>&1 &
  wait -n || true
  echo "containerd or dockerd ended. The end of their logs:"
  tail -n 5 "$LOGS/containerd.log" "$LOGS/dockerd.log"
  return 1
}

"${1:-outside}"
