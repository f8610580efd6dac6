#!/usr/bin/env bash
# Make .venv and install Undertone into it, editable, with everything that its tests need.
set -euo pipefail
cd "$(dirname "$0")/.."

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3.14 python3}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "Undertone needs Python 3.11 or newer; ${PYTHON:-python3} is $(${PYTHON:-python3} -V 2>&1 || echo missing)." \
         "Install one, or name it: make test PYTHON=/path/to/python3.11" >&2
    return 1
}

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    echo "making .venv with $($python -V)"
    "$python" -m venv --clear .venv || {
        echo "$python cannot make a virtual environment (Debian, Ubuntu: apt-get install python3-venv)" >&2
        exit 1
    }
fi
echo "installing Undertone and its development tools into .venv"
# An old pip, such as that of Python 3.11, tries many versions of packages before it finds those that fit together.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
# `--no-compile` saves time: Python compiles a module when it is first imported, and most of these never are.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --editable ./device --editable '.[dev]'
.venv/bin/python scripts/micropython.py
