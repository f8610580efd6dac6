"""A household for the walk: its meters and appliances, all counting energy.

usage: python household.py FOLDER BROKER_PORT MODBUS_PORT

A P1 meter on FOLDER/ttyUSB0, a Modbus meter (pymodbus' own server), a plug on zigbee2mqtt/plug, Home Assistant's
statestream of another one, pulses into FOLDER/pulses (what gpiomon prints), a file FOLDER/heat.
"""

import asyncio
import contextlib
import os
import sys
import tty
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from undertone_device.sensors.crc import ARC, crc16

SECONDS = 0.5
WATT_HOURS = 20


def telegram(watt_hours: int) -> bytes:
    """What a P1 meter says, with the checksum of these bytes."""
    text = f"/ISK5\\2M550T-1012\r\n\r\n1-3:0.2.8(50)\r\n1-0:1.8.1({watt_hours / 1000:010.3f}*kWh)\r\n!".encode()
    return text + b"%04X\r\n" % crc16(text, ARC, 0)


async def main(folder: Path, broker: int, modbus: int) -> None:
    """Until standard input ends."""
    meter, port = os.openpty()
    tty.setraw(meter)
    tty.setraw(port)
    os.set_blocking(meter, False)
    (folder / "ttyUSB0").symlink_to(os.ttyname(port))
    pulses = os.open(folder / "pulses", os.O_RDWR | os.O_NONBLOCK)
    registers = SimData(40, values=[0, 0], datatype=DataType.REGISTERS)
    server = ModbusTcpServer(SimDevice(1, simdata=[registers]), address=("127.0.0.1", modbus))
    await server.serve_forever(background=True)
    home = paho.Client(CallbackAPIVersion.VERSION2)
    home.connect("127.0.0.1", broker)
    home.loop_start()
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    energy = 100_000
    while not ended.done():
        energy += WATT_HOURS
        # If nobody reads the port, it fills up. These bytes are then lost, as on a real port.
        with contextlib.suppress(BlockingIOError):
            os.write(meter, telegram(energy))
        os.write(pulses, b"%d\n" % energy)
        await server.async_setValues(1, 16, 40, [energy >> 16, energy & 0xFFFF])
        home.publish("zigbee2mqtt/plug", f'{{"energy": {energy / 1000:.3f}, "linkquality": 90}}')
        home.publish("homeassistant/sensor/washer_energy/state", f"{energy / 1000:.3f}")
        (folder / "heat.new").write_text(f"{energy}\n", encoding="utf-8")
        (folder / "heat.new").replace(folder / "heat")
        await asyncio.sleep(SECONDS)
    home.loop_stop()
    await server.shutdown()


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
