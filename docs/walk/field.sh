#!/usr/bin/env bash
# From an empty folder to a fleet in the field, on one machine, with the commands of the guides:
#
#     docs/walk/field.sh FOLDER
#
# Three boards (MicroPython's unix port in their place), a gateway with five sensors, Home Assistant's statestream;
# then a device gets a new password, one is revoked while it runs, one is added. At the end every report is accounted
# for. Needs mosquitto, MicroPython as `micropython` or $MICROPYTHON ("node tests/support/board32.mjs" after `make tools`
# has words of 32 bits), and undertone-ldp[aggregator,meters] with pymodbus.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
board="${MICROPYTHON:-micropython} $here/../../device/examples/unix_device.py"
mkdir -p "$1" && cd "$1"
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT

free_port() { python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
until_seen() { for _ in $(seq 1200); do grep -q -- "$1" "$2" 2>/dev/null && return; sleep 0.1; done; cat "$2"; false; }
acked() { until_seen "^acked" "energy-$1.log"; }
reports() { for _ in $(seq 1200); do [ "$(grep -c ^acked "$1")" -ge "$2" ] && return; sleep 0.1; done; cat "$1"; false; }

echo "== The campaign: energy that meters count, in slots of a second so that a walk is short"
undertone init home --port "$(free_port)" --health "127.0.0.1:$(free_port)" --audit
undertone campaign create home energy --sensor energy --unit Wh --bound 1000 --epsilon 2 --slot-seconds 1 \
    --set 'measure="counter"' --set cycle=4 --set 'rounds=[4]' --set epoch_slots=40 --set report_slots=4000 \
    --set min_reports=3
undertone devices add 9 --home home
fleet=home/fleets/energy
# Slots this short are reserved a minute at a time, which a restart forfeits; here each report is written down.
sed -i 's|"insecure"|"write_seconds": 1, &|' $fleet/devices/*/policy.json
undertone serve home > server.log 2>&1 &
server=$!
until_seen "devices connect to" server.log

echo "== Three boards"
seq 1000 30 40000 > readings.txt
start_board() { $board "$fleet/devices/energy-$1/device.json" 100000 readings.txt >> "energy-$1.log" 2>&1 & }
start_board 001; one=$!
start_board 002; two=$!
start_board 003; three=$!

echo "== A household: a gateway with five sensors, and Home Assistant's statestream"
home=$(free_port) modbus=$(free_port)
mosquitto -p "$home" 2> home.log &
mkfifo household.stdin pulses && exec 3<> household.stdin
python "$here/household.py" . "$home" "$modbus" < household.stdin 3<&- > household.log 2>&1 &
# devices add leaves one field to whoever installs: where the samples come from.
source_of() { sed -i "s|\"state\": \"state\"|&, \"source\": $2|" "$fleet/devices/energy-$1/device.json"; }
source_of 004 "{\"kind\": \"p1\", \"port\": \"$PWD/ttyUSB0\", \"obis\": \"1-0:1.8.1\"}"
source_of 005 "{\"kind\": \"modbus-tcp\", \"host\": \"127.0.0.1\", \"tcp_port\": $modbus, \"slave\": 1, \"address\": 40}"
topic="\"kind\": \"mqtt\", \"host\": \"127.0.0.1\", \"tcp_port\": $home, \"scale\": [1000, 1]"
source_of 006 "{$topic, \"topic\": \"zigbee2mqtt/plug\", \"field\": \"energy\"}"
source_of 007 "{\"kind\": \"fifo\", \"path\": \"$PWD/pulses\"}"
source_of 008 "{\"kind\": \"file\", \"path\": \"$PWD/heat\"}"
source_of 009 "{$topic, \"topic\": \"homeassistant/sensor/washer_energy/state\"}"
mkdir gateway
for number in 004 005 006 007 008 009; do ln -s "$PWD/$fleet/devices/energy-$number" gateway/; done
undertone device run --all gateway --ledger gateway.ledger > gateway.log 2>&1 &
gateway=$!
for number in 001 002 003; do acked "$number"; done
for number in 004 005 006 007 008 009; do until_seen "acked energy-$number" gateway.ledger; done

echo "== Estimates appear"
until_seen "±" server.log
undertone query home/stores/energy.sqlite --newest 3

echo "== energy-001 gets a new password; the board starts with it, and what waited in its outbox is not lost"
undertone devices rotate energy-001 --home home
until_seen "not authorised" energy-001.log
kill -INT $one; wait $one || true
mv energy-001.log before.log
start_board 001; one=$!
reports energy-001.log 3

echo "== energy-002 is revoked while it runs"
undertone devices revoke energy-002 --home home
until_seen "not authorised" energy-002.log
kill -INT $two; wait $two || true

echo "== One more board"
undertone devices add 1 --home home
start_board 010; four=$!
acked 010

echo "== Everything ends, and every report is accounted for"
undertone device status --config gateway/energy-004/device.json
kill -INT $one $three $four
kill $gateway
wait $one $three $four $gateway || true
accounted() {
    undertone verify --store home/stores/energy.sqlite --ledger gateway.ledger --ledger before.log \
        --ledger energy-001.log --ledger energy-002.log --ledger energy-003.log --ledger energy-010.log
}
# What was acknowledged last is still on its way into the store.
for _ in $(seq 60); do accounted > last.log 2>&1 && break; sleep 1; done
kill $server; wait $server || true
exec 3>&-
undertone devices list --home home
accounted
