#!/usr/bin/env bash
# Install the servers that `make test-services` needs and `make test` does not.
# If a server is still missing, the test that needs it says so, and fails under CI.
set -euo pipefail
cd "$(dirname "$0")/.."

apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }

# Half a gigabyte that only these tests need.
.venv/bin/python -c "import pyspark" 2>/dev/null ||
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[spark]'

# package: a file of it
declare -A brings=(
    [postgresql]="/usr/lib/postgresql/*/bin/initdb"
    [chromium]="/usr/bin/chromium"
    [prometheus]="/usr/bin/prometheus"
    [systemd]="/usr/bin/systemd-analyze"
    [default-jre-headless]="/usr/bin/java"
)

missing=()
for package in "${!brings[@]}"; do
    # shellcheck disable=SC2086  # a pattern
    compgen -G ${brings[$package]} >/dev/null || missing+=("$package")
done
if ((${#missing[@]})); then
    if [[ $(id -u) != 0 ]]; then
        echo "not installed: ${missing[*]} (root, or you, can: apt-get install ${missing[*]})" >&2
        exit 0
    fi
    echo "installing ${missing[*]} with apt-get"
    apt install -y "${missing[@]}" >/dev/null 2>&1 || { apt update && apt install -y "${missing[@]}" >/dev/null; }
fi
