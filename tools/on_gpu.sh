#!/bin/sh
# On a machine with a card, in the unpacked bundle or in a checkout with build/gpu beside it:
#   sudo tools/on_gpu.sh test [pytest's words]        the tests that need a card
#   sudo tools/on_gpu.sh bench --out DIR overhead|truth|long
# PYTHON names the interpreter that has PyTorch.
set -eu
cd "$(dirname "$0")/.."
site=$PWD/site
[ -d "$site" ] || site=$PWD/build/gpu/site
[ -d "$site" ] || { echo "on_gpu: no bundle here; make gpu-bundle makes it" >&2; exit 1; }
[ -e /dev/nvidiactl ] || { echo "on_gpu: no NVIDIA card here" >&2; exit 1; }
[ -d /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing
PYTHONPATH=$site:$PWD
export PYTHONPATH
what=${1:-test}
[ $# = 0 ] || shift
case $what in
    test) exec "${PYTHON:-python3}" -m pytest -p no:cacheprovider tests/gpu "$@" ;;
    bench) exec "${PYTHON:-python3}" -m benchmarks.gpu.run "$@" ;;
    *) echo "on_gpu: test or bench, not $what" >&2; exit 2 ;;
esac
