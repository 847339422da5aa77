# Sourced by scripts that run as the first process of namespaces of their own.

# Starts the same script again in new namespaces, in the cgroups of CGROUPS. When that ends, the kernel ends all that
# runs there.
outside() {
  local folder
  for folder in $CGROUPS; do echo $$ >"$folder/cgroup.procs"; done
  exec unshare --pid --mount --net --uts --ipc --cgroup --fork --kill-child -- bash "$0" inside
}

# Mounts the kernel's views of processes, devices and cgroups inside. In a cgroup namespace these mounts begin at its
# own cgroups, so that it sees no others.
mount_kernel() {
  local option folder
  mount -t proc proc /proc
  mount -t sysfs sysfs /sys
  mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
  for option in $HIERARCHIES; do
    folder=/sys/fs/cgroup/${option#name=}
    mkdir "$folder"
    mount -t cgroup -o "$option" cgroup "$folder"
  done
}
