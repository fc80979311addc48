#!/usr/bin/env bash
# Put the registers of a TDX machine together to the one measurement that clients pin with --measurement.
#
#   pin-tdx.sh MRTD RTMR0 RTMR1 RTMR2 [RTMR3]
#
# Each is 96 hexadecimal digits, as tdx-measure computes them from the firmware, kernel, initrd and command line. Nothing in this recipe
# extends RTMR3: without it, it is taken as zero. What is printed is SHA-384 over the five, one after the other.
set -euo pipefail

if [[ $# -lt 4 || $# -gt 5 ]]; then
    echo "usage: $0 MRTD RTMR0 RTMR1 RTMR2 [RTMR3]" >&2
    exit 2
fi
registers=("$1" "$2" "$3" "$4" "${5:-$(printf '%096d' 0)}")
escaped=
for register in "${registers[@]}"; do
    if [[ ! $register =~ ^[0-9a-fA-F]{96}$ ]]; then
        echo "a register has 96 hexadecimal digits" >&2
        exit 2
    fi
    for ((at = 0; at < 96; at += 2)); do
        escaped+="\\x${register:at:2}"
    done
done
printf '%b' "$escaped" | sha384sum | cut -d ' ' -f 1
