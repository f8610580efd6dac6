"""The demonstration: aggregator, a fleet of MQTT clients and one MicroPython device, each a real process.

Start reading: ``run.py``; ``plan.py`` prepares the campaign and the devices.
"""

from undertone_simulator.demo.plan import DemoOptions, DemoResult
from undertone_simulator.demo.run import DEMO_COLLECTIONS, Display, run
from undertone_simulator.processes import Failed

__all__ = ["DEMO_COLLECTIONS", "DemoOptions", "DemoResult", "Display", "Failed", "run"]
