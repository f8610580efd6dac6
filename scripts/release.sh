#!/usr/bin/env bash
# Build wheels and sdists of both distributions into dist/, check them, and run the wheels in a fresh environment.
# Upload nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
version=$("$bin/python" -c 'import undertone; print(undertone.__version__)')

[[ -z $(git status --porcelain) ]] || { echo "there are uncommitted changes: commit or stash them" >&2; exit 1; }
grep -q "^## $version " CHANGELOG.md || { echo "CHANGELOG.md has no section '## $version': write it" >&2; exit 1; }
if grep -Hn 'https://undertone\.example/' pyproject.toml device/pyproject.toml >&2; then
    echo "these addresses are placeholders: put the project's own addresses in their place" >&2
    exit 1
fi
rm -rf dist
"$bin/python" -m build --outdir dist device
"$bin/python" -m build --outdir dist .
"$bin/twine" check --strict dist/*
"$bin/undertone" device release "dist/undertone-boards-$version.zip"
"$bin/python" scripts/home_assistant_zip.py "dist/undertone-homeassistant.zip"
for distribution in undertone_device undertone_ldp; do
    "$bin/python" scripts/wheel_contents.py "dist/$distribution-$version-py3-none-any.whl"
done

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"$bin/python" -m venv "$fresh/venv"
"$fresh/venv/bin/pip" install --quiet --disable-pip-version-check --find-links dist "undertone-ldp[simulator]==$version"
cd "$fresh"
[[ $(venv/bin/undertone --version) == "undertone $version" ]]
venv/bin/undertone certify --mechanism hybrid --epsilon 1 >/dev/null
venv/bin/undertone simulate --devices 2000 --slots 4 >/dev/null
venv/bin/undertone demo --devices 50 --slots 6 --png demo.png >/dev/null
[[ -s demo.png ]]
echo "dist/ holds $version, checked; upload it by hand: twine upload dist/*.whl dist/*.tar.gz"
