# For scripts that are the first and last process of namespaces of their own: bash sources it.

# Starts the same script again inside, in the cgroups of CGROUPS. The kernel ends all that runs there with it.
outside() {
  local folder
  for folder in $CGROUPS; do echo $$ >"$folder/cgroup.procs"; done
  exec unshare --pid --mount --net --uts --ipc --cgroup --fork --kill-child -- bash "$0" inside
}

# What the kernel tells of processes, devices and cgroups, as it is inside. A cgroup namespace's mounts begin at its own
# cgroups: it sees no other.
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
