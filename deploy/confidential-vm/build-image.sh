#!/usr/bin/env bash
# Build a root file system that cannot be changed unnoticed, and the kernel command line that says so.
#
#   build-image.sh WHEELS OUT
#
# WHEELS is a folder with the wheels of scumble[service,attestation] and of all it needs, made by
# `pip download --only-binary :all:` and checked by you. OUT gets:
#
#   vmlinuz, initrd.img    of the distribution
#   root.squashfs          the root file system
#   root.verity            its hash tree
#   cmdline                the kernel command line, with the root hash in it
#
# It needs root, mmdebstrap, squashfs-tools and veritysetup (cryptsetup). The same inputs give the same root hash only if the
# distribution's packages are the same: set SNAPSHOT to a dated mirror, and SOURCE_DATE_EPOCH.
set -euo pipefail

if [[ $# -ne 2 ]]; then
    echo "usage: $0 WHEELS OUT" >&2
    exit 2
fi
wheels=$(realpath "$1")
out=$(realpath -m "$2")
here=$(dirname "$(realpath "$0")")
suite=${SUITE:-trixie}
mirror=${SNAPSHOT:?set SNAPSHOT to a dated mirror of the distribution}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:?set SOURCE_DATE_EPOCH to a number of seconds}

mkdir -p "$out"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

packages=linux-image-amd64,systemd,systemd-sysv,dracut,cryptsetup-bin,python3,python3-venv,e2fsprogs
mmdebstrap --variant=minbase --include="$packages" "$suite" "$root" "$mirror"

install -d "$root/wheels"
cp "$wheels"/*.whl "$root/wheels/"
chroot "$root" python3 -m venv /opt/scumble
chroot "$root" /opt/scumble/bin/pip install --no-index --find-links /wheels "scumble[service,attestation]"
rm -rf "$root/wheels"

units=$root/etc/systemd/system
install -D -m 0644 "$here/../systemd/scumble.service" "$units/scumble.service"
install -D -m 0644 "$here/tsm.conf" "$units/scumble.service.d/tsm.conf"
install -D -m 0644 /dev/stdin "$root/etc/scumble/serve.env" <<< "SCUMBLE_HOST=0.0.0.0"
install -D -m 0644 /dev/stdin "$root/etc/systemd/network/10-all.network" << 'UNIT'
[Match]
Type=ether

[Network]
DHCP=yes
UNIT
# The provider's disk: only sealed bytes are on it, and nothing on it is run.
install -D -m 0644 /dev/stdin "$units/var-lib-private-scumble.mount" << 'UNIT'
[Unit]
Before=scumble.service

[Mount]
What=/dev/disk/by-label/scumble
Where=/var/lib/private/scumble
Type=ext4
Options=noexec,nosuid,nodev

[Install]
RequiredBy=scumble.service
UNIT
chroot "$root" systemctl enable scumble.service systemd-networkd.service var-lib-private-scumble.mount
# Nobody logs in, and nothing is written to the root file system.
chroot "$root" systemctl mask getty.target serial-getty@.service emergency.service rescue.service systemd-firstboot.service
chroot "$root" passwd --lock root
printf 'tmpfs /var tmpfs mode=0755 0 0\ntmpfs /tmp tmpfs mode=1777 0 0\n' > "$root/etc/fstab"
: > "$root/etc/machine-id"

kernel=$(basename "$(echo "$root"/lib/modules/*)")
chroot "$root" dracut --force --no-hostonly --reproducible --add "systemd systemd-veritysetup" /boot/initrd.img "$kernel"
cp "$root/boot/vmlinuz-$kernel" "$out/vmlinuz"
cp "$root/boot/initrd.img" "$out/initrd.img"
rm -rf "${root:?}/boot"/* "$root/var/cache/apt" "$root/var/lib/apt/lists"

mksquashfs "$root" "$out/root.squashfs" -noappend -all-root -no-exports
salt=$(printf '%064d' 0)
hash=$(veritysetup format --salt "$salt" --uuid 00000000-0000-0000-0000-000000000000 \
    "$out/root.squashfs" "$out/root.verity" | awk '/^Root hash:/ { print $3 }')

# systemd.import_credentials=no: the host could hand in units and passwords by way of the firmware's tables.
options=(
    "root=/dev/mapper/root" "ro" "rootfstype=squashfs" "systemd.verity=yes" "roothash=$hash"
    "systemd.verity_root_data=/dev/vda" "systemd.verity_root_hash=/dev/vdb"
    "systemd.verity_root_options=panic-on-corruption"
    "systemd.import_credentials=no" "systemd.gpt_auto=no" "systemd.swap=no"
    "rd.shell=0" "rd.emergency=poweroff" "lockdown=confidentiality" "random.trust_cpu=on"
)
printf '%s' "${options[*]}" > "$out/cmdline"
echo "root hash $hash"
