#!/bin/sh
# Makes dist: the sdist, a wheel for this machine and, where the compiler is there, one for arm64.
# dist.sh FOLDER makes them in another one. What else lies there stays.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-dist}

mkdir -p "$folder"
rm -f "$folder"/ingero-*.tar.gz "$folder"/ingero-*.whl
python -c 'import mesonpy, sys; mesonpy.build_sdist(sys.argv[1])' "$folder" >build/sdist.log 2>&1 || { cat build/sdist.log >&2; exit 1; }
tools/wheel.sh "$folder"
if [ "$(uname -m)" = aarch64 ]; then
    :
elif command -v aarch64-linux-gnu-gcc >/dev/null; then
    tools/wheel.sh "$folder" aarch64
else
    echo "dist: no wheel for arm64: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross" >&2
fi
ls -sh "$folder"
