#!/bin/sh
# Makes .venv, with what building and testing need. `make setup` runs it; `setup.sh --long` (`make setup-long`)
# only installs what the long tests need besides.
#
# Debian packages that are missing are installed when we are root; otherwise the
# command to run is printed. PYTHON names an interpreter to use instead of a found one.
set -eu
cd "$(dirname "$0")/.."
# The environment to be made must not make itself.
PATH=$(printf ':%s:' "$PATH" | sed "s|:$PWD/.venv/bin:|:|g; s/^://; s/:$//")

# package:command, or package:. where there is no command to look for
BUILD="clang:clang gcc:gcc libc6-dev:. libbpf-dev:. libelf-dev:. zlib1g-dev:. pkg-config:pkg-config nodejs:node npm:npm"
# The tests that need root also need these.
TEST="g++:g++ iproute2:ip nftables:nft e2fsprogs:mkfs.ext4 sqlite3:sqlite3 util-linux:unshare mount:losetup procps:ps prometheus:promtool podman:podman runc:runc"
# The tests of the dashboard drive a browser.
TEST="$TEST chromium:chromium fonts-dejavu-core:."
# Only `make test-long` needs these: empty Debian roots, a virtual machine, the wheel for arm64, man pages.
LONG="mmdebstrap:mmdebstrap qemu-system-x86:qemu-system-x86_64 gcc-aarch64-linux-gnu:aarch64-linux-gnu-gcc"
LONG="$LONG libc6-dev-arm64-cross:. groff-base:groff"
CANDIDATES="python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3"
USABLE='
import ensurepip, os, sys, sysconfig, venv
sys.exit(sys.version_info < (3, 11) or not os.path.exists(sysconfig.get_path("include") + "/Python.h"))
'

say() { echo "setup: $*" >&2; }

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# The packages of a list that are not there, neither as a package nor as a command.
missing() {
    for each in $1; do
        package=${each%%:*} command=${each#*:}
        installed "$package" && continue
        [ "$command" != . ] && command -v "$command" >/dev/null 2>&1 && continue
        printf ' %s' "$package"
    done
}

# An interpreter that is new enough, can make environments and has its headers.
find_python() {
    for each in ${PYTHON:-$CANDIDATES}; do
        if command -v "$each" >/dev/null 2>&1 && "$each" -I -c "$USABLE" >/dev/null 2>&1; then
            echo "$each"
            return
        fi
    done
}

install_packages() {
    [ -n "$1" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        say "packages are missing. Run this, then make again:"
        say "  sudo apt-get install --no-install-recommends$1"
        return 1
    fi
    say "installing$1"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086  # a list
    apt-get update -qq && apt-get install -y -qq --no-install-recommends $1 >/dev/null
}

system_packages() {
    if ! command -v dpkg-query >/dev/null 2>&1; then
        say "not a Debian system: clang, a C compiler, pkg-config, node, npm and the headers of libbpf 1.1 must be there"
        return
    fi
    needed=$(missing "$BUILD")
    [ -n "$(find_python)" ] || needed="$needed python3 python3-venv python3-dev"
    extra=$(missing "$TEST")
    if [ "$(id -u)" = 0 ]; then
        needed="$needed$extra"
    elif [ -n "$extra" ]; then
        say "tests that need root will want:$extra"
    fi
    install_packages "$needed"
}

long_packages() {
    if ! command -v dpkg-query >/dev/null 2>&1; then
        say "not a Debian system: mmdebstrap, qemu-system-x86_64, aarch64-linux-gnu-gcc and groff must be there"
        return
    fi
    install_packages "$(missing "$LONG")"
}

make_environment() {
    python=$(find_python)
    if [ -z "$python" ]; then
        say "no Python 3.11 or later that can make environments and has its headers (tried: ${PYTHON:-$CANDIDATES})"
        return 1
    fi
    say "$("$python" --version) ($(command -v "$python")) in .venv"
    "$python" -m venv --clear .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
    .venv/bin/python -m compileall -q .venv/lib || true # a package may carry files for other versions
}

case ${1-} in
--long) long_packages ;;
*)
    system_packages
    make_environment
    ;;
esac
