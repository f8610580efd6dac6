#!/usr/bin/env bash
# Build MicroPython with the words of a board, for scripts/board_memory.py: the unix port with 32 bits, with the code of
# a board frozen into it and without, each with TLS outside MicroPython's heap (as on an ESP32) and in it (as on a Pico
# W). Only these measurements need it. It needs Debian or Ubuntu, gcc, make, 200 MB, and the network; not root. The
# sources are Debian's packages micropython and mbedtls; nothing is installed outside .tools/board.
set -euo pipefail
cd "$(dirname "$0")/.."
repo=$PWD
out=$repo/.tools/board
work=$out/build
# The newest release of Debian that has micropython; the libraries for 32 bits must suit this machine's compiler.
sources=${MICROPYTHON_RELEASE:-trixie}
mkdir -p "$work/lists/sources/partial" "$work/lists/packages/partial" "$work/cache/archives/partial" "$work/deb"

command -v dpkg-source >/dev/null || { echo "dpkg-source is missing: apt-get install dpkg-dev" >&2; exit 1; }

# apt-get with lists of its own: WHAT is sources or packages.
apt() {
    local what=$1
    shift
    apt-get -qq -o Dir::State::Lists="$work/lists/$what" -o Dir::Cache="$work/cache" -o APT::Sandbox::User= \
        -o Debug::NoLocking=1 "${options[@]}" "$@"
}

cd "$work"
if [[ ! -d micropython || ! -d mbedtls ]]; then
    echo "fetching the sources of MicroPython and mbedTLS from Debian $sources"
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    # The mirror from which this machine takes its own packages.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 '/debian/*$') ||
        { echo "apt has no mirror of Debian: expected one in its sources" >&2; exit 1; }
    echo "deb-src [signed-by=$key] $mirror $sources main" >sources.list
    options=(-o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null)
    apt sources update
    rm -rf micropython mbedtls ./*.dsc
    apt sources source --download-only micropython mbedtls
    for name in micropython mbedtls; do
        dpkg-source --no-check --skip-patches -x "$name"_*.dsc "$name" >/dev/null
    done
    # Debian's patches take mbedTLS from a package; here it is built with MicroPython's own settings.
    rm -rf micropython/lib/mbedtls
    ln -s "$work/mbedtls" micropython/lib/mbedtls
    # A board looks a path up in 128 bytes of its stack, the unix port in 4096. A thread's Python code is limited to what
    # _thread.stack_size asks for, less 8 KB; the thread itself gets more than that.
    port=micropython/ports/unix
    sed -i 's/\(#define MICROPY_ALLOC_PATH_MAX\).*/\1 (128)/' $port/mpconfigport.h
    sed -i -e 's/if (\*stack_size < .*/if (0) {/' \
        -e 's/\(pthread_attr_setstacksize(&attr, \*stack_size\))/\1 + 65536)/' $port/mpthreadport.c
fi

if [[ ! -d root32/usr/lib32 ]]; then
    echo "fetching the C library for 32 bits"
    gcc=$(gcc -dumpversion | cut -d. -f1)
    options=()
    apt packages update
    (cd deb && apt packages download "lib32gcc-$gcc-dev" libc6-dev-i386 libc6-dev)
    for package in deb/*.deb; do
        dpkg -x "$package" root32
    done
fi

arch=$(gcc -print-multiarch)
libraries=root32/usr/lib/gcc/$arch/$(gcc -dumpversion | cut -d. -f1)/32
cat >gcc32 <<WRAPPER
#!/bin/sh
exec gcc -m32 -idirafter $work/root32/usr/include -idirafter $work/root32/usr/include/$arch \
    -idirafter /usr/include/$arch -B$work/$libraries -B$work/root32/usr/lib32 \
    -L$work/$libraries -L$work/root32/usr/lib32 "\$@"
WRAPPER
chmod +x gcc32

# What boards freeze as ssl.py is of micropython-lib, which Debian's package lacks: this stands in for it.
mkdir -p frozen
cat >frozen/ssl.py <<'PYTHON'
import tls
from tls import CERT_NONE, CERT_REQUIRED, PROTOCOL_TLS_CLIENT


class SSLContext:
    def __init__(self, protocol):
        self._context = tls.SSLContext(protocol)

    @property
    def verify_mode(self):
        return self._context.verify_mode

    @verify_mode.setter
    def verify_mode(self, value):
        self._context.verify_mode = value

    def load_verify_locations(self, cadata):
        self._context.load_verify_locations(cadata)

    def wrap_socket(self, sock, server_hostname=None):
        return self._context.wrap_socket(sock, server_hostname=server_hostname)
PYTHON
# The stand-ins for a board's modules, which are in flash on a board, and the program that runs main.py.
cat >frozen/files.py <<PYTHON
module("ssl.py", opt=3)
for name in ("drive", "machine", "network", "ntptime", "port_names"):
    module(name + ".py", base_path="$repo/tests/device/board/stand_in", opt=0)
PYTHON
cat >frozen/frozen.py <<PYTHON
include("files.py")
include("$repo/device/manifest_main.py")
module("measure.py", base_path="$repo/device", opt=3)
PYTHON
cat >frozen/tls_in_heap.h <<'HEADER'
#include "mbedtls/mbedtls_config_port.h"
#include <stddef.h>
void *m_tracked_calloc(size_t count, size_t size);
void m_tracked_free(void *pointer);
#define MBEDTLS_PLATFORM_MEMORY
#define MBEDTLS_PLATFORM_STD_CALLOC m_tracked_calloc
#define MBEDTLS_PLATFORM_STD_FREE m_tracked_free
HEADER
touch frozen/README.md

make=(nice -n 5 make --silent -j"$(nproc)")
echo "building mpy-cross"
"${make[@]}" -C micropython/mpy-cross >build.log 2>&1
for form in files frozen; do
    for tls in outside inside; do
        echo "building MicroPython: code $form, TLS $tls the heap"
        options=()
        [[ $tls == inside ]] && options=("MBEDTLS_CONFIG_FILE='\"$work/frozen/tls_in_heap.h\"'"
            CFLAGS_EXTRA=-DMICROPY_TRACKED_ALLOC=1)
        # The manifest is read again, because the code may have changed.
        rm -f "build-$form-$tls/frozen_content.c"
        "${make[@]}" -C micropython/ports/unix "CC=$work/gcc32" LDFLAGS_EXTRA=-static CWARN=-w MICROPY_PY_FFI=0 \
            MICROPY_PY_BTREE=0 MPY_CROSS_FLAGS=-msmall-int-bits=31 STRIP=true SIZE=true "MPY_LIB_DIR=$work/frozen" \
            "FROZEN_MANIFEST=$work/frozen/$form.py" "BUILD=$work/build-$form-$tls" "${options[@]}" >>build.log 2>&1 ||
            { tail -20 build.log >&2; exit 1; }
        cp "build-$form-$tls/micropython" "$out/micropython-$form-$tls"
    done
done
echo "built: $out/micropython-{files,frozen}-{outside,inside}"
