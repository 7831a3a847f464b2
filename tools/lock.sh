#!/bin/sh
# Writes requirements/*.txt from pyproject.toml, for every Python we support, with hashes.
# Versions already there stay while they fit; UPGRADE=1 takes the newest.
set -eu
cd "$(dirname "$0")/.."

[ -x build/lock/bin/uv ] || {
    .venv/bin/python -m venv build/lock
    build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
}

compile() {
    target=$1
    shift
    rm -f build/lock/out.txt
    [ ! -f "$target" ] || cp "$target" build/lock/out.txt
    build/lock/bin/uv pip compile "$@" --quiet --universal --python-version 3.11 \
        --generate-hashes --no-emit-index-url --no-header ${UPGRADE:+--upgrade} --output-file build/lock/out.txt >/dev/null
    { echo '# Written by `make lock`.'; cat build/lock/out.txt; } >"$target"
}

# What the image holds, what builds it, and what a clone needs.
compile requirements/run.txt pyproject.toml --extra gpu --extra tui --extra mcp --extra prometheus --extra otlp-grpc
compile requirements/build.txt --group build
compile requirements/dev.txt pyproject.toml --extra tui --extra gpu --extra parquet --extra mcp --extra prometheus --extra otlp-grpc --extra fleet --group dev
