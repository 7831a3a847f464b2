#!/bin/sh
# Makes dist: the sdist, a wheel for this machine and, where the compiler is there, one for arm64.
set -eu
cd "$(dirname "$0")/.."

rm -rf dist
mkdir dist
python -c 'import mesonpy; mesonpy.build_sdist("dist")' >build/sdist.log 2>&1 || { cat build/sdist.log >&2; exit 1; }
tools/wheel.sh dist
if [ "$(uname -m)" = aarch64 ]; then
    :
elif command -v aarch64-linux-gnu-gcc >/dev/null; then
    tools/wheel.sh dist aarch64
else
    echo "dist: no wheel for arm64: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross" >&2
fi
ls -sh dist
