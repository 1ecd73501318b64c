#!/bin/sh
# Makes FOLDER/.venv for each FOLDER given (default: the folder of this script) with exactly the packages that
# FOLDER/requirements.txt pins. Does nothing where that is already so; makes it anew when the requirements changed.
#
#     examples/setup.sh                 the Python tools of the examples
#     examples/setup.sh tests           the same for the test suite
#
# PYTHON names another interpreter (default: python3).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}

fail() { printf 'setup.sh: %s\n' "$*" >&2; exit 1; }

# One line that changes when the environment has to be made anew.
wanted() { printf '%s %s\n' "$("$python" -c 'import sys; print(sys.version)' | tr '\n' ' ')" "$(cksum < "$1/requirements.txt")"; }

need_python() {
    command -v "$python" > /dev/null || fail "there is no $python. Install Python 3.11 or later, or set PYTHON to it."
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$("$python" --version) is too old: Python 3.11 or later is needed. Set PYTHON to one."
    # Debian keeps what `python3 -m venv` needs in a package of its own.
    "$python" -c 'import ensurepip' 2> /dev/null || "$here/packages.sh" python3-venv
}

make_environment() {
    folder=$1
    [ -f "$folder/requirements.txt" ] || fail "$folder has no requirements.txt"
    want=$(wanted "$folder")
    if [ "$(cat "$folder/.venv/.made-for" 2> /dev/null)" = "$want" ]; then return; fi
    echo "setup.sh: making $folder/.venv" >&2
    rm -rf "$folder/.venv"
    "$python" -m venv "$folder/.venv" || fail "$python -m venv failed for $folder/.venv"
    "$folder/.venv/bin/python3" -m pip install --quiet --disable-pip-version-check --requirement "$folder/requirements.txt" ||
        fail "the packages of $folder/requirements.txt could not be installed; run this again when the network is there"
    printf '%s\n' "$want" > "$folder/.venv/.made-for"
}

need_python
[ $# -gt 0 ] || set -- "$here"
for folder in "$@"; do make_environment "$folder"; done
