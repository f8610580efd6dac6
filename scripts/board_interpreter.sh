#!/usr/bin/env bash
# Build MicroPython with the words of a board, for scripts/board_results.py: the unix port with 32 bits, with the code of
# a board frozen into it and without, each with TLS outside MicroPython's heap (as on an ESP32) and in it (as on a Pico
# W). Only these measurements need it. It needs Debian or Ubuntu, gcc, make, 200 MB, and the network; not root. The
# sources are Debian's packages micropython and mbedtls; nothing is installed outside .tools/board.
set -euo pipefail
cd "$(dirname "$0")/.."
repo=$PWD
out=$repo/.tools/board
work=$out/build
scripts/board_sources.sh
mkdir -p "$work/lists/packages/partial" "$work/cache/archives/partial" "$work/deb"

cd "$work"
if [[ ! -d root32/usr/lib32 ]]; then
    echo "fetching the C library for 32 bits"
    gcc=$(gcc -dumpversion | cut -d. -f1)
    # apt-get with package lists of its own, so it needs no root.
    apt=(apt-get -qq -o Dir::State::Lists="$work/lists/packages" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=
        -o Debug::NoLocking=1)
    "${apt[@]}" update
    (cd deb && "${apt[@]}" download "lib32gcc-$gcc-dev" libc6-dev-i386 libc6-dev)
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

# Boards freeze ssl.py from micropython-lib, which Debian's package lacks. This file takes its place.
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

    def wrap_socket(self, sock, *, do_handshake_on_connect=True, server_hostname=None):
        return self._context.wrap_socket(
            sock, do_handshake_on_connect=do_handshake_on_connect, server_hostname=server_hostname
        )
PYTHON
# Stand-ins for a board's own modules, and the program that runs main.py, are frozen, because a board has them in flash.
cat >frozen/files.py <<PYTHON
module("ssl.py", opt=3)
for name in ("drive", "machine", "network", "ntptime", "port_names", "small"):
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
for form in files frozen; do
    for tls in outside inside; do
        echo "building MicroPython: code $form, TLS $tls the heap"
        options=()
        [[ $tls == inside ]] && options=("MBEDTLS_CONFIG_FILE='\"$work/frozen/tls_in_heap.h\"'"
            CFLAGS_EXTRA=-DMICROPY_TRACKED_ALLOC=1)
        # Without this file make reads the manifest again, and so freezes the code as it is now.
        rm -f "build-$form-$tls/frozen_content.c"
        "${make[@]}" -C micropython/ports/unix "CC=$work/gcc32" LDFLAGS_EXTRA=-static CWARN=-w MICROPY_PY_FFI=0 \
            MICROPY_PY_BTREE=0 MPY_CROSS_FLAGS=-msmall-int-bits=31 STRIP=true SIZE=true "MPY_LIB_DIR=$work/frozen" \
            "FROZEN_MANIFEST=$work/frozen/$form.py" "BUILD=$work/build-$form-$tls" "${options[@]}" >>build.log 2>&1 ||
            { tail -20 build.log >&2; exit 1; }
        cp "build-$form-$tls/micropython" "$out/micropython-$form-$tls"
    done
done
echo "built: $out/micropython-{files,frozen}-{outside,inside}"
