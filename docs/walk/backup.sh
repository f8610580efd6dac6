#!/usr/bin/env bash
# The exercise of docs/operator.md: a server's disk dies, and an encrypted backup brings it up in an empty folder.
#
#     docs/walk/backup.sh FOLDER
#
# It begins with docs/walk/first.sh. It ends with 1 unless the restored server gives a number again.
set -euo pipefail
. "$(dirname "$0")/first.sh"
server=$(jobs -p | head -n 1)

(umask 077; openssl rand -base64 24 > passphrase)
undertone backup home home.backup --passphrase-file passphrase
kill -9 "$server"
undertone restore home.backup new --passphrase-file passphrase
undertone doctor new
undertone serve new > serve.log 2>&1 &

SECONDS=0 restored=$(date -u +%FT%T)
until_seen '"cohort": [0-9]*, "estimate": [0-9-]' undertone query new/stores/power.sqlite --json --from "$restored"
echo "the restored server gives a number $SECONDS seconds after its start"
