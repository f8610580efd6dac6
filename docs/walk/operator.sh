#!/usr/bin/env bash
# A server's first half hour, on one machine, with the commands of the guides:
#
#     docs/walk/operator.sh FOLDER [SECONDS] [DEVICES]        # 1800 and 200 unless given
#
# Two campaigns on one TLS broker, each with DEVICES simulated devices over the wire in slots of two seconds. Meanwhile
# the broker and the server are restarted, passwords change, a campaign's plan changes, the disk fills, and a campaign is
# retired. At the end every report of both is accounted for, or this ends with 1.
# Needs mosquitto, prlimit (util-linux), and undertone-ldp[server]; with $WHEELS, a folder of both wheels, these are
# installed into FOLDER/venv.
set -euo pipefail
mkdir -p "$1" && cd "$1"
seconds=${2:-1800} devices=${3:-200}
slots=$((seconds / 2))
trap 'kill $(jobs -p) 2>/dev/null || true; [ ! -f home/broker/mosquitto.pid ] || kill "$(cat home/broker/mosquitto.pid)" 2>/dev/null || true; wait' EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
say() { echo "== $(date +%T) $*"; }
began=$(date +%s)
# Sleeps until so many hundredths of the time are over.
at() { local left=$((began + seconds * $1 / 100 - $(date +%s))); [ "$left" -le 0 ] || sleep "$left"; }
until_true() { for _ in $(seq 600); do "$@" > last.log 2>&1 && return; sleep 0.2; done; cat last.log; tail -20 serve.log; false; }

if [ -n "${WHEELS:-}" ]; then
    say "Install"
    python3 -m venv venv
    venv/bin/pip install -q --find-links "$WHEELS" 'undertone-ldp[server]'
    PATH=$PWD/venv/bin:$PATH
fi

say "A folder, a broker, two campaigns, and their devices"
health=127.0.0.1:$(free_port)
undertone init home --broker "mqtts://localhost:$(free_port)" --health "$health" --audit
start_broker() { mosquitto -c "$PWD/home/broker/mosquitto.conf" -d && until_true test -s home/broker/mosquitto.pid; }
stop_broker() { broker=$(cat home/broker/mosquitto.pid); kill "$broker"; while kill -0 "$broker" 2>/dev/null; do sleep 0.1; done; }
start_broker
plan=(--epsilon 1 --slot-seconds 2 --set cycle=5 --set "rounds=[5]" --set epoch_slots=30 --set report_slots=20000)
undertone campaign create home electricity --sensor load --unit Wh --bound 10000 "${plan[@]}"
undertone campaign create home water --sensor flow --unit l --bound 500 "${plan[@]}"
for campaign in electricity water; do
    undertone devices add "$devices" --home home --campaign $campaign
done
undertone doctor home

say "Serve"
start_server() {
    # By a pipe, as a service's log goes: a full disk is no reason to lose words, or to end.
    undertone serve home 2> >(cat >> serve.log) &
    server=$!
    until_true python3 -c "import urllib.request; urllib.request.urlopen('http://$health/readyz')"
}
start_server
fleets=()
for campaign in electricity water; do
    undertone fleet --fleet home/fleets/$campaign --clients "$devices" --slots "$slots" --seed ${#fleets[@]} \
        --output "$campaign" > "$campaign.log" 2>&1 &
    fleets+=($!)
done
on_air() { for name in electricity water; do undertone campaign show home $name --json | grep -q '"epochs": [1-9]' || return 1; done; }
until_true on_air
undertone doctor home
began=$(date +%s)

at 12; say "The broker is restarted"
stop_broker
start_broker
until_true grep -q "connected again to the broker" serve.log

at 24; say "The server is killed, and started again"
kill -9 $server; wait $server 2>/dev/null || true
start_server

at 36; say "A device, and then the server itself, get new passwords"
undertone devices rotate water-001 --home home --campaign water
undertone broker rotate home
stop_broker
start_broker
kill $server; wait $server || true
start_server

at 48; say "A change of a plan is shown, refused where it cannot be, and made where it can"
sed 's/^epsilon = .*/epsilon = "2"/' home/campaigns/water.toml > dearer.toml
undertone campaign diff home water dearer.toml && exit 1
sed 's/^bound = .*/bound = 900/' home/campaigns/water.toml > wider.toml
undertone campaign apply home water wider.toml && exit 1
{ cat home/campaigns/water.toml; echo "cohort_share = 0.1"; } > plan.toml
undertone campaign apply home water plan.toml
until_true grep -q "takes up its changed plan" serve.log

at 60; say "The disk is full: no file of the server may grow"
prlimit --pid $server --fsize=4096:unlimited
at 72; until_true grep -q "cannot be written" serve.log
prlimit --pid $server --fsize=unlimited:unlimited
say "There is room again"

at 84; say "A campaign is retired; what its devices still send is counted"
undertone campaign retire home electricity
undertone campaign list home

wait "${fleets[@]}"
say "Everything sent is accounted for"
accounted() { undertone verify --ledger "$1/fleet.ledger" --store "home/stores/$1.sqlite"; }
# What was acknowledged last is still on its way into the store.
for campaign in electricity water; do until_true accounted $campaign; done
undertone doctor home
for campaign in electricity water; do
    echo "-- $campaign"
    tail -n 3 $campaign.log
    accounted $campaign
done
undertone query home/stores/water.sqlite --newest 3
kill $server; wait $server
say "Done"
