#!/usr/bin/env bash
# Start the machine that measure-snp.sh has measured, on a host with SEV-SNP (Linux 6.11, QEMU 9.1 or later).
#
#   launch-snp.sh OUT OVMF VCPUS DISK [VCPU_TYPE]
#
# DISK is the provider's: a file with an ext4 file system labelled "scumble", made by `mkfs.ext4 -L scumble DISK`.
set -euo pipefail

if [[ $# -lt 4 || $# -gt 5 ]]; then
    echo "usage: $0 OUT OVMF VCPUS DISK [VCPU_TYPE]" >&2
    exit 2
fi
# The policy 0x30000: simultaneous multithreading allowed, debugging and migration not.
exec qemu-system-x86_64 -enable-kvm -nographic -nodefaults -no-reboot \
    -machine q35,confidential-guest-support=sev0,memory-backend=ram0 \
    -object memory-backend-memfd,id=ram0,size="${MEMORY:-16G}" \
    -object sev-snp-guest,id=sev0,cbitpos=51,reduced-phys-bits=1,policy=0x30000,kernel-hashes=on \
    -cpu "${5:-EPYC-v4}" -smp "$3" -bios "$2" \
    -kernel "$1/vmlinuz" -initrd "$1/initrd.img" -append "$(cat "$1/cmdline")" \
    -drive file="$1/root.squashfs",if=none,id=root,format=raw,readonly=on -device virtio-blk-pci,drive=root \
    -drive file="$1/root.verity",if=none,id=verity,format=raw,readonly=on -device virtio-blk-pci,drive=verity \
    -drive file="$4",if=none,id=data,format=raw -device virtio-blk-pci,drive=data \
    -netdev user,id=net,hostfwd=tcp::7300-:7300 -device virtio-net-pci,netdev=net
