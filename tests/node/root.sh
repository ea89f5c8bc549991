#!/bin/sh
# Mounts a node's file systems and starts something in them. Runs in new namespaces, so that nothing is left
# mounted when they end:
#   unshare -m -p -n -f sh root.sh chroot LOWER DIR - COMMAND...     a command in the tree, no systemd
#   unshare -m -p -n -u -i -f sh root.sh boot LOWER DIR CGROUP BOOT-ID   systemd as PID 1
# DIR holds upper, work and root (the mount point).
set -eu
umask 022

mode=$1 lower=$2 dir=$3 cgroup=$4
shift 4

if [ "$mode" = boot ]; then
    # Only this process moves, not unshare, which stays outside: a cgroup with processes of its own could hand
    # no controllers down. The cgroup namespace comes after the move, so that this cgroup is its root.
    echo 0 >"$cgroup/cgroup.procs"
    # Soft limits as the kernel gives them to PID 1, whatever ours are; hard ones only a full root could raise.
    exec prlimit --nofile=1024: --core=0: unshare -C sh "$0" boot-inside "$lower" "$dir" "$cgroup" "$@"
fi

root=$dir/root
options="lowerdir=$lower,upperdir=$dir/upper,workdir=$dir/work"
# A tree that is thrown away when something fails needs no syncing.
[ "$mode" = chroot ] && options=$options,volatile

mount --make-rprivate /
mount -t overlay overlay -o "$options" "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t tmpfs -o mode=755,nosuid tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -t devpts -o newinstance,mode=620,ptmxmode=666,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs "$root/run"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/tmp"

path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
if [ "$mode" = chroot ]; then
    exec chroot "$root" env -i PATH=$path HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
fi

# Each boot has its own id, as on real hardware; the kernel's stays.
echo "$1" >"$root/run/boot-id"
mount --bind "$root/run/boot-id" "$root/proc/sys/kernel/random/boot_id"
# The kernel's settings are this machine's: a node reads them, and may write those of its own network.
for part in sys sysrq-trigger; do
    [ -e "$root/proc/$part" ] || continue
    mount --rbind "$root/proc/$part" "$root/proc/$part"
    mount -o remount,bind,ro "$root/proc/$part"
done
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount -o remount,bind,rw "$root/proc/sys/net"
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$root/sys/fs/cgroup"
mkdir "$root/run/host"
: >"$root/run/host/notify"
mount --bind "$dir/notify" "$root/run/host/notify"

cd "$root"
pivot_root . .
umount -l .
exec env -i container=sysjobs NOTIFY_SOCKET=/run/host/notify PATH=$path \
    /usr/lib/systemd/systemd --system --unit=multi-user.target
