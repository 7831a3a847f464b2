#!/bin/sh
# Builds a wheel that brings the libraries it links to: wheel.sh FOLDER [aarch64].
# The tag says the oldest glibc its symbols need; auditwheel reads that from them.
set -eu
cd "$(dirname "$0")/.."
folder=$1 machine=${2:-$(uname -m)}
built=build/py$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
options=

if [ "$machine" != "$(uname -m)" ]; then
    command -v "$machine-linux-gnu-gcc" >/dev/null || {
        echo "wheel: no $machine-linux-gnu-gcc: apt-get install gcc-$machine-linux-gnu libc6-dev-arm64-cross" >&2
        exit 1
    }
    python -m tools.sysroot build/sysroot
    built=$built-$machine options=-Csetup-args=--cross-file=$PWD/tools/$machine.ini
    export _PYTHON_HOST_PLATFORM="linux-$machine"
    export LD_LIBRARY_PATH="$PWD/build/sysroot/usr/lib/$machine-linux-gnu"
fi

plain=$(mktemp -d)
trap 'rm -rf "$plain"' EXIT
mkdir -p "$folder"
env -u LD_LIBRARY_PATH python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
    -Cbuild-dir="$built" ${options:+"$options"} --wheel-dir "$plain" .
python -m auditwheel repair --wheel-dir "$folder" "$plain"/*.whl >"$plain/said" 2>&1 || {
    cat "$plain/said" >&2
    exit 1
}
