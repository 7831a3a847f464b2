#!/bin/sh
# ingero, its interpreter and all its packages in one file: unpacked once, then started from there.
# INGERO_CACHE names the folder; otherwise it is /var/cache for root, ~/.cache for others.
set -u
version=@VERSION@ head_bytes=@HEAD_BYTES@
if [ -n "${INGERO_CACHE:-}" ]; then place=$INGERO_CACHE
elif [ "$(id -u)" = 0 ]; then place=/var/cache/ingero
else place=${XDG_CACHE_HOME:-${HOME:?}/.cache}/ingero; fi
tree=$place/onefile-$version

give_up() {
    echo "error: cannot unpack ingero in $place: $1" >&2
    echo "hint: Name a folder of yours that allows programs: INGERO_CACHE=FOLDER" >&2
    exit 1
}

unpack() {
    umask 022
    mkdir -p "$place" 2>/dev/null || give_up "the folder cannot be made"
    [ -O "$place" ] || give_up "the folder is somebody else's"
    new=$(mktemp -d "$tree.XXXXXX" 2>/dev/null) || give_up "no file can be made there"
    chmod 755 "$new"
    tail -c "+$((head_bytes + 1))" "$0" | tar -xz -C "$new" --no-same-owner 2>/dev/null || {
        rm -rf "$new"
        give_up "the disk is full, or tar or gzip is missing"
    }
    # Whoever was first won: nobody renames onto a folder that has files.
    mv -T "$new" "$tree" 2>/dev/null || rm -rf "$new"
}

[ -x "$tree/bin/python3" ] || unpack
# What root starts must be root's.
[ -O "$tree" ] && [ -O "$place" ] || give_up "$tree is somebody else's"
INGERO_FILE=$0 exec "$tree/bin/python3" -E -P -s "$tree/bin/ingero" "$@"
give_up "programs there cannot be started"
