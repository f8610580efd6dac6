#!/usr/bin/env bash
# Lints JavaScript and CSS by Biome, which npm fetches into .tools/biome: scripts/biome.sh ci, or format --write.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v npm >/dev/null; then
    echo "npm is not installed, so JavaScript and CSS are not linted: apt-get install npm, or: brew install node" >&2
    [[ ${CI:-} != true ]]
    exit
fi
if [[ ! -x .tools/biome/node_modules/.bin/biome ]]; then
    mkdir -p .tools/biome
    npm install --prefix .tools/biome --no-save --no-audit --no-fund --loglevel=error --no-update-notifier \
        '@biomejs/biome@~2.6.0' >/dev/null
fi
exec .tools/biome/node_modules/.bin/biome "$@"
