#!/usr/bin/env bash
# Install the servers that `make test-services` needs and `make test` does not.
# If a server is still missing, the test that needs it says so, and fails under CI.
set -euo pipefail
cd "$(dirname "$0")/.."

# macOS has an older bash, which lacks `declare -A`.
if ((BASH_VERSINFO[0] < 4)); then
    echo "this bash is $BASH_VERSION, and scripts/servers.sh needs 4 or newer: install it, for example: brew install bash" >&2
    exit 1
fi

apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }

# Home Assistant, in an environment of its own: it needs Python 3.12 or 3.13 and packages of fixed versions.
home_assistant=2025.1.4
if [[ ! -x .tools/home-assistant/bin/hass ]]; then
    python=
    versions=${PYENV_ROOT:-$HOME/.pyenv}/versions
    for candidate in python3.13 "$versions"/3.13.*/bin/python python3.12 "$versions"/3.12.*/bin/python; do
        "$candidate" -c 'import venv' 2>/dev/null && python=$candidate && break
    done
    if [[ -n $python ]]; then
        echo "installing Home Assistant $home_assistant into .tools"
        mkdir -p .tools
        rm -rf .tools/home-assistant
        "$python" -m venv .tools/home-assistant
        pip=(.tools/home-assistant/bin/python -m pip --quiet --disable-pip-version-check)
        site=$(.tools/home-assistant/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        # The package has its own list of versions. Packages that Home Assistant would install when it starts are
        # installed here.
        { "${pip[@]}" install --no-deps "homeassistant==$home_assistant" &&
            "${pip[@]}" install --prefer-binary -c "$site/homeassistant/package_constraints.txt" \
                "homeassistant==$home_assistant" paho-mqtt janus pillow securetar cronsim home-assistant-frontend; } ||
            { rm -rf .tools/home-assistant; echo "Home Assistant could not be installed: its tests are skipped" >&2; }
    else
        echo "Home Assistant needs Python 3.12 or 3.13, which was not found: its tests are skipped" >&2
    fi
fi

# axe finds parts of a page that are hard to use for people with disabilities.
[[ -e .tools/npm/node_modules/axe-core/axe.min.js ]] ||
    npm install --silent --ignore-scripts --no-audit --no-fund --prefix .tools/npm axe-core@4.10.3 >/dev/null ||
    echo "npm could not install axe-core: the tests that need it are skipped" >&2

# Package of Debian -> a file by which this script knows that it is installed.
declare -A brings=(
    [postgresql]="/usr/lib/postgresql/*/bin/initdb"
    [chromium]="/usr/bin/chromium"
    [firefox-esr]="/usr/bin/firefox-esr"
    [prometheus]="/usr/bin/prometheus"
    [influxdb]="/usr/bin/influxd"
    [systemd]="/usr/bin/systemd-analyze"
    [default-jre-headless]="/usr/bin/java"
)

missing=()
for package in "${!brings[@]}"; do
    # shellcheck disable=SC2086  # a pattern
    compgen -G ${brings[$package]} >/dev/null || missing+=("$package")
done
if ((${#missing[@]})); then
    if ! command -v apt-get >/dev/null; then
        echo "not found where Debian has them: ${missing[*]}. Without apt-get this script does not install them;" \
            "the tests that need them are skipped" >&2
        exit 0
    fi
    if [[ $(id -u) != 0 ]]; then
        echo "not installed, so their tests are skipped: ${missing[*]} (as root: apt-get install ${missing[*]})" >&2
        exit 0
    fi
    echo "installing ${missing[*]} with apt-get"
    apt install -y "${missing[@]}" >/dev/null 2>&1 || { apt update && apt install -y "${missing[@]}" >/dev/null; }
fi
