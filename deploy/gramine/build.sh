#!/usr/bin/env bash
# Render and sign the manifest, and print MRENCLAVE: the measurement that clients pin with --measurement.
#
#   build.sh VENV OUT
#
# VENV is a virtual environment with scumble[attestation] in it. OUT gets the manifest and its signature. The signing key, made by
# gramine-sgx-gen-private-key, names who signed (MRSIGNER); clients of Scumble pin MRENCLAVE, and do not look at that.
set -euo pipefail

if [[ $# -ne 2 ]]; then
    echo "usage: $0 VENV OUT" >&2
    exit 2
fi
venv=$(realpath "$1")
out=$(realpath -m "$2")
here=$(dirname "$(realpath "$0")")
python=$(realpath "$venv/bin/python")
ask() { "$venv/bin/python" -c "import sysconfig; print($1)"; }
mkdir -p "$out"

gramine-manifest \
    -Dpython="$python" \
    -Dpython_lib="$(ask "sysconfig.get_path('stdlib')")" \
    -Dvenv="$venv" \
    -Dsite_packages="$(ask "sysconfig.get_path('purelib')")" \
    -Darch_libdir="/lib/$(ask "sysconfig.get_config_var('MULTIARCH')")" \
    "$here/scumble-enclave.manifest.template" "$out/scumble-enclave.manifest"
gramine-sgx-sign --manifest "$out/scumble-enclave.manifest" --output "$out/scumble-enclave.manifest.sgx"
gramine-sgx-sigstruct-view "$out/scumble-enclave.sig"
