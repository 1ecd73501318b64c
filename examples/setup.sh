#!/bin/sh
# Makes examples/.venv, the Python environment of the example tools, with exactly the packages that requirements.txt pins.
# Does nothing where that is already so; makes it anew when the requirements or the interpreter changed.
# PYTHON names another interpreter (default: python3).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
stamp=$here/.venv/.ready

fail() { printf 'setup.sh: %s\n' "$*" >&2; exit 1; }

need_python() {
    command -v "$python" > /dev/null || fail "there is no $python. Install Python 3.11 or later, or set PYTHON to it."
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$("$python" --version) is too old: Python 3.11 or later is needed. Set PYTHON to one."
}

# Text that changes when the environment has to be made anew.
wanted() { "$python" -c 'import sys; print(sys.executable, sys.version)' && cat "$here/requirements.txt"; }

make_environment() {
    # Debian keeps what `python3 -m venv` needs in a package of its own.
    "$python" -c 'import ensurepip' 2> /dev/null || "$here/packages.sh" python3-venv
    echo "setup.sh: making $here/.venv" >&2
    rm -rf "$here/.venv"
    "$python" -m venv "$here/.venv" || fail "$python -m venv $here/.venv failed"
    "$here/.venv/bin/python3" -m pip install --quiet --disable-pip-version-check --requirement "$here/requirements.txt" ||
        fail "the packages of $here/requirements.txt could not be installed; run this again when the network is there"
    printf '%s\n' "$1" > "$stamp"
}

need_python
want=$(wanted)
if [ "$(cat "$stamp" 2> /dev/null)" = "$want" ]; then
    touch "$stamp" # for make, which compares times
else
    make_environment "$want"
fi
