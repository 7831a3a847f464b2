#!/bin/sh
# Bundles the dashboard's pages: frontend.sh SOURCE OUT DEPFILE. The package's build runs it.
#
# The packages of package-lock.json are installed beside the output, once for each lock file.
set -eu
source=$1 out=$2 depfile=$3
modules=$out/modules

mkdir -p "$modules"
if ! cmp -s "$source/package-lock.json" "$modules/installed.json"; then
    cp "$source/package.json" "$source/package-lock.json" "$modules"
    (cd "$modules" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error) || {
        echo "frontend: npm could not install what $source/package-lock.json lists; is a registry reachable?" >&2
        echo "frontend: to build without the dashboard's pages: -Csetup-args=-Ddashboard=disabled" >&2
        exit 1
    }
    cp "$source/package-lock.json" "$modules/installed.json"
fi
exec node "$source/build.mjs" "$out" "$modules" "$depfile"
