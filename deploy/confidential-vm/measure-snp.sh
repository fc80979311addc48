#!/usr/bin/env bash
# Compute, before anything is started, the launch measurement of an SEV-SNP machine: what clients pin with --measurement.
#
#   measure-snp.sh OUT OVMF VCPUS [VCPU_TYPE]
#
# OUT is the folder that build-image.sh has filled. OVMF is the firmware, built for AmdSev with kernel hashes (OvmfPkg/AmdSev): an
# ordinary one does not measure the kernel, and sev-snp-measure refuses it. The number and type of CPUs are measured too.
set -euo pipefail

if [[ $# -lt 3 || $# -gt 4 ]]; then
    echo "usage: $0 OUT OVMF VCPUS [VCPU_TYPE]" >&2
    exit 2
fi
exec sev-snp-measure --mode snp --vcpus "$3" --vcpu-type "${4:-EPYC-v4}" --ovmf "$2" \
    --kernel "$1/vmlinuz" --initrd "$1/initrd.img" --append "$(cat "$1/cmdline")"
