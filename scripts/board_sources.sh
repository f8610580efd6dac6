#!/usr/bin/env bash
# Fetch the sources of MicroPython and mbedTLS into .tools/board/build, and build mpy-cross, for the measurements of
# scripts/board_interpreter.sh and scripts/board_results.py. It needs Debian or Ubuntu, gcc, make and the network; not
# root. The sources are Debian's packages micropython and mbedtls; nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/.tools/board/build
# The newest release of Debian that has micropython.
sources=${MICROPYTHON_RELEASE:-trixie}
mkdir -p "$work/lists/sources/partial" "$work/cache/archives/partial"

command -v dpkg-source >/dev/null || { echo "dpkg-source is missing: apt-get install dpkg-dev" >&2; exit 1; }

cd "$work"
if [[ ! -d micropython || ! -d mbedtls ]]; then
    echo "fetching the sources of MicroPython and mbedTLS from Debian $sources"
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    # The mirror from which this machine takes its own packages.
    # shellcheck disable=SC2016  # apt-get fills it in
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 '/debian/*$') ||
        { echo "apt has no mirror of Debian: expected one in its sources" >&2; exit 1; }
    echo "deb-src [signed-by=$key] $mirror $sources main" >sources.list
    # apt-get with package lists of its own, so it needs no root.
    apt=(apt-get -qq -o Dir::State::Lists="$work/lists/sources" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=
        -o Debug::NoLocking=1 -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null)
    "${apt[@]}" update
    rm -rf micropython mbedtls ./*.dsc
    "${apt[@]}" source --download-only micropython mbedtls
    for name in micropython mbedtls; do
        dpkg-source --no-check --skip-patches -x "$name"_*.dsc "$name" >/dev/null
    done
    # Debian's patches use mbedTLS from a package; here it is built with MicroPython's own settings.
    rm -rf micropython/lib/mbedtls
    ln -s "$work/mbedtls" micropython/lib/mbedtls
    # To look up a path, a board takes 128 bytes of its stack, the unix port 4096. Python code in a thread may use the
    # size given to _thread.stack_size less 8 KB; the thread itself gets more than that.
    port=micropython/ports/unix
    sed -i 's/\(#define MICROPY_ALLOC_PATH_MAX\).*/\1 (128)/' $port/mpconfigport.h
    sed -i -e 's/if (\*stack_size < .*/if (0) {/' \
        -e 's/\(pthread_attr_setstacksize(&attr, \*stack_size\))/\1 + 65536)/' $port/mpthreadport.c
fi

echo "building mpy-cross"
nice -n 5 make --silent -j"$(nproc)" -C micropython/mpy-cross >build.log 2>&1
