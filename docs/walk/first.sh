#!/usr/bin/env bash
# From nothing to the first number in six commands, on one machine and without any broker:
#
#     docs/walk/first.sh FOLDER
#
# Fifty simulated devices report in slots of a second to the server's own MQTT endpoint. Needs undertone-ldp[server] and
# undertone-ldp[simulator]. It ends with 1 if there is no number on the page after $LIMIT seconds, 120 unless given.
set -euo pipefail
mkdir -p "$1" && cd "$1"
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
until_seen() { until "${@:2}" 2>&1 | grep -q -- "$1"; do [ $SECONDS -lt "${LIMIT:-120}" ] || { cat serve.log; exit 1; }; sleep 0.2; done; }
port=$(free_port) page=127.0.0.1:$(free_port) health=127.0.0.1:$(free_port)
SECONDS=0

undertone init home --port "$port" --page "$page" --health "$health" --audit
undertone campaign create home power --sensor load --unit Wh --bound 10000 --epsilon 1 --slot-seconds 1 \
    --set cycle=4 --set "rounds=[4]" --set report_slots=5000
undertone devices add 50 --home home
undertone serve home > serve.log 2>&1 &
undertone fleet --fleet home/fleets/power --clients 50 --slots 1000 --output fleet > fleet.log 2>&1 &
until_seen '"kind": *"report"' curl -s "http://$page/api/v1/campaigns/power"
undertone query home/stores/power.sqlite --newest 3
echo "the first number was on the page after $SECONDS seconds"
