"""The demonstration: broker, aggregator, a fleet of MQTT clients and one MicroPython device, each a real process."""

from undertone_simulator.demo.plan import Options
from undertone_simulator.demo.result import Result, SlotResult
from undertone_simulator.demo.run import Display, Failed, run

__all__ = ["Display", "Failed", "Options", "Result", "SlotResult", "run"]
