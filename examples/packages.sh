#!/bin/sh
# Sees to it that Debian packages are there: installs the missing ones when run as root, otherwise says which are
# missing and how to get them (exit code 1).
#
#     examples/packages.sh                      what the examples need: montage, ncbi-blast+
#     examples/packages.sh chromium nodejs      these
#
# A package counts as there when the command that we use from it is found, however it was installed.
set -eu

# The command that shows that a package is there.
command_of() {
    case $1 in
        montage) echo mProjectPP ;;
        ncbi-blast+) echo blastn ;;
        fuse3) echo fusermount3 ;;
        nodejs) echo node ;;
        build-essential) echo cc ;;
        acl) echo setfacl ;;
        attr) echo setfattr ;;
        iproute2) echo ip ;;
        openssh-server) echo /usr/sbin/sshd ;;
        slurm-wlm) echo /usr/sbin/slurmctld ;;
        munge) echo /usr/sbin/munged ;;
        mpich) echo mpiexec.mpich ;;
        libmpich-dev) echo mpicc.mpich ;;
        *) echo "$1" ;;
    esac
}

is_there() {
    case $1 in
        python3-venv) python3 -c 'import ensurepip' 2> /dev/null ;;
        libacl1-dev) [ -e /usr/include/sys/acl.h ] ;;
        *) command -v "$(command_of "$1")" > /dev/null ;;
    esac
}

# The packages of "$@" that are not there.
missing_of() {
    for package in "$@"; do is_there "$package" || printf '%s ' "$package"; done
}

fail() { printf 'packages.sh: %s\n' "$*" >&2; exit 1; }

install() {
    echo "packages.sh: installing $*" >&2
    export DEBIAN_FRONTEND=noninteractive
    # Another program may hold the package database for a while; the lists may be old or not there at all.
    apt-get -q -o DPkg::Lock::Timeout=300 update >&2 || fail "apt-get update failed; is the network there?"
    apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" >&2 || fail "apt-get could not install: $*"
}

[ $# -gt 0 ] || set -- montage ncbi-blast+
missing=$(missing_of "$@")
missing=${missing% }
[ -n "$missing" ] || exit 0
command -v apt-get > /dev/null ||
    fail "missing: $missing. This system has no apt-get: install what gives these programs by its own means."
[ "$(id -u)" -eq 0 ] || fail "missing: $missing. Install with: sudo apt-get install $missing"
# shellcheck disable=SC2086  # the names are split on purpose
install $missing
# shellcheck disable=SC2086
still=$(missing_of $missing)
[ -z "$still" ] || fail "installed, and yet their commands are not found: $still"
