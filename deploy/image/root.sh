#!/bin/sh
# Gathers what the image holds: root.sh FOLDER. The Dockerfile runs it where everything is installed.
#
# The interpreter, its library and /opt/ingero are taken; every shared library they need comes along.
set -eu
root=$1
version=$(/opt/ingero/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')

mkdir -p "$root/etc/ssl/certs" "$root/tmp" "$root/run/ingero" "$root/var/lib/ingero" "$root/proc" "$root/sys" "$root/dev"
chmod 1777 "$root/tmp"
chmod 755 "$root/var/lib/ingero"

# Debian has merged /usr: these are links.
for each in bin lib lib64; do
    [ ! -L "/$each" ] || cp -a "/$each" "$root/$each"
done

# A folder or a file, at the same place.
take() {
    for each; do
        mkdir -p "$root$(dirname "$each")"
        cp -a "$each" "$root$(dirname "$each")/"
    done
}

take "/usr/bin/python$version" /usr/bin/python3 "/usr/lib/python$version" /opt/ingero
take /etc/ssl/certs/ca-certificates.crt
echo 'root:x:0:0:root:/var/lib/ingero:' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"

# Neither tests, headers and programs for development, nor what draws windows.
cd "$root/usr/lib/python$version"
rm -rf config-* ensurepip idlelib lib2to3 pydoc_data test tkinter turtledemo distutils __pycache__/pydoc*
cd "$root/opt/ingero"
find . -type d \( -name tests -o -name include \) -prune -exec rm -rf {} +
rm -f bin/activate* bin/Activate*

# The libraries that any of this is linked to, their loader among them: the file, and the link it is asked for by.
find "$root/usr/bin" "$root/usr/lib" "$root/opt" -type f \( -name '*.so*' -o -name 'python3*' \) -exec ldd {} + 2>/dev/null |
    sed -n 's/.*=> \(\/[^ ]*\) (.*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p' | sort -u |
    while read -r library; do
        case $library in "$root"*) continue ;; esac
        take "$(readlink -f "$(dirname "$library")")/$(basename "$library")" "$(readlink -f "$library")"
    done
ldconfig -r "$root"
