#!/usr/bin/env bash
# Install the tools that pip cannot install: mosquitto, and MicroPython for 32 bits (needs node).
# It prints a line for each tool that is still missing; tests that need such a tool are skipped, or fail under CI.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.tools
executables=(mosquitto mosquitto_sub mosquitto_pub mosquitto_passwd)
PATH=$PATH:/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin:$tools/bin

has_mosquitto() {
    local executable
    for executable in "${executables[@]}"; do
        command -v "$executable" >/dev/null || return 1
    done
    # mosquitto prints its version in the first line of its help, with exit code 3.
    [[ $(mosquitto -h 2>&1 || true) =~ mosquitto\ version\ ([0-9]+) ]] && ((BASH_REMATCH[1] >= 2))
}

apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }

install_as_root() {
    [[ $(id -u) == 0 ]] || return 1
    echo "installing mosquitto with apt-get"
    apt install -y mosquitto mosquitto-clients >/dev/null 2>&1 ||
        { apt update && apt install -y mosquitto mosquitto-clients >/dev/null; }
}

# Print the packages that `apt-get install` would fetch: mosquitto, its clients, and missing libraries.
missing_packages() {
    apt install -y --reinstall --no-install-recommends --print-uris -o Debug::NoLocking=1 mosquitto mosquitto-clients |
        sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p"
}

# Without root, apt-get can still download, with package lists of its own.
unpack_without_root() {
    local state=$tools/apt packages package
    echo "unpacking mosquitto into .tools (not root)"
    rm -rf "$tools/deb" && mkdir -p "$tools/bin" "$tools/deb"
    if ! packages=$(missing_packages 2>/dev/null) || [[ -z $packages ]]; then
        mkdir -p "$state/lists/partial" "$state/archives/partial"
        apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dir::State::Lists="$state/lists" -o Dir::Cache="$state" "$@"; }
        apt update && packages=$(missing_packages) && [[ -n $packages ]] || return 1
    fi
    # shellcheck disable=SC2086
    (cd "$tools/deb" && apt download $packages) || return 1
    for package in "$tools"/deb/*.deb; do
        dpkg -x "$package" "$tools/deb"
        rm "$package"
    done
    local libraries executable program
    libraries=$(find "$tools/deb" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
    for executable in "${executables[@]}"; do
        program=$(find "$tools/deb" -path "*bin/$executable" -type f)
        [[ -n $program ]] || return 1
        # shellcheck disable=SC2016  # the written program expands it
        printf '#!/bin/sh\nLD_LIBRARY_PATH="%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "%s" "$@"\n' \
            "$libraries" "$program" >"$tools/bin/$executable"
        chmod +x "$tools/bin/$executable"
    done
}

if ! has_mosquitto; then
    if command -v apt-get >/dev/null; then
        install_as_root || unpack_without_root || true
    fi
    has_mosquitto || echo "No mosquitto 2.0 or newer here. Install it with its clients:" \
        "apt-get install mosquitto mosquitto-clients, or: brew install mosquitto"
fi

node_package=@micropython/micropython-webassembly-pyscript
if [[ ! -e .tools/node/node_modules/$node_package/micropython.mjs ]]; then
    if command -v npm >/dev/null; then
        echo "fetching MicroPython for 32 bits into .tools/node"
        mkdir -p .tools/node
        npm install --prefix .tools/node --no-save --no-audit --no-fund \
            --loglevel=error --no-update-notifier "$node_package@^1.27.0" >/dev/null ||
            echo "npm could not fetch $node_package: the tests of a 32-bit MicroPython are skipped"
    else
        echo "npm is not installed: the tests of a 32-bit MicroPython are skipped." \
            "Install it: apt-get install npm, or: brew install node"
    fi
fi

# The example client in C (tests/device/core/client_c) is compiled by $CC, or else by gcc.
command -v "${CC:-gcc}" >/dev/null ||
    echo "${CC:-gcc} is not installed: the tests of the client in C are skipped. Install it: apt-get install gcc"
