#!/usr/bin/env bash
# Makes the files of a kind node in TREE, as kind's images/base does on a machine with a registry.
#
# It reads from the environment: SYSTEM, the files of Debian; KIND, the folder with kind's files; HERE, the folder with
# the files that replace kindnetd; POLICIES, the program for NetworkPolicies; BINARIES, the programs to put on PATH;
# VERSION, Kubernetes' version; PAUSE, the image of the containers that hold a pod's namespaces.
set -euo pipefail

units() {
  local units=$TREE/lib/systemd/system
  rm -f "$units"/sysinit.target.wants/systemd-tmpfiles-setup.service "$units"/multi-user.target.wants/* \
    "$TREE"/etc/systemd/system/*.wants/* "$units"/local-fs.target.wants/* "$units"/sockets.target.wants/*udev* \
    "$units"/sockets.target.wants/*initctl* "$units"/basic.target.wants/*
  echo "ReadKMsg=no" >>"$TREE/etc/systemd/journald.conf"
  ln -sf /usr/lib/systemd/systemd "$TREE/sbin/init"
  chroot "$TREE" systemctl --quiet enable kubelet containerd undo-mount-hacks plant-network plant-policies
  chroot "$TREE" systemctl --quiet mask systemd-binfmt.service
}

# restrict_oom_score_adj: without CAP_SYS_RESOURCE nobody can lower the score that pods get by default.
containerd() {
  local config=$TREE/etc/containerd/config.toml
  sed -i -e "s|sandbox_image = .*|sandbox_image = \"$PAUSE\"|" \
    -e "s/restrict_oom_score_adj = false/restrict_oom_score_adj = true/" "$config"
  chroot "$TREE" ctr oci spec |
    chroot "$TREE" jq '.hooks.createContainer = [{"path": "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
      >"$TREE/etc/containerd/cri-base.json"
}

files() {
  cp --recursive "$KIND"/images/base/files/. "$HERE"/node/. "$TREE"
  cp "$HERE/network.py" "$POLICIES" "$TREE/kind"
  chmod -R a+rX "$TREE"/{kind,etc/systemd,etc/containerd,etc/default,etc/sysctl.d}
  chmod a+x "$TREE"/{kind/bin,usr/local/bin}/*
  cp $BINARIES "$TREE/usr/bin"
  mkdir -p "$TREE"/opt/cni "$TREE/etc/kubernetes/manifests"
  ln -s /usr/lib/cni "$TREE/opt/cni/bin"
  # kind's systemd units expect containerd at the path that it has in kind's own images.
  ln -s /usr/bin/containerd "$TREE/usr/local/bin/containerd"
  echo -n "$VERSION" >"$TREE/kind/version"
  echo "KUBELET_EXTRA_ARGS=--runtime-cgroups=/system.slice/containerd.service --fail-cgroupv1=false" \
    >"$TREE/etc/default/kubelet"
}

cp --archive "$SYSTEM" "$TREE"
files
units
containerd
