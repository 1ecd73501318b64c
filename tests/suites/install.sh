#!/bin/sh
# Builds the two suites that file systems are judged by into build/suites, in these versions, unless they are there.
#
#     tests/suites/install.sh
set -eu
cd "$(dirname "$0")/../.."
root=build/suites

# NAME VERSION
build() {
    if [ "$("$root/bin/$1" --version 2> /dev/null)" != "$1 $2" ]; then
        cargo install --quiet --locked --root "$root" --target-dir "$root/target" --version "$2" "$1"
    fi
}

build pjdfstest 0.2.2
build fsx 0.3.2
rm -rf "$root/target"
