"""The process that runs amqtt: passwords from mosquitto's password file, and no client that would lose its reports.

    python -m undertone_simulator.amqtt_process PORT PASSWORD_FILE

It listens on loopback and ends when its standard input does, so that it never outlives whoever started it.
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amqtt.broker import Broker
from amqtt.plugins.base import BaseAuthPlugin

from undertone_aggregator.broker import HOST
from undertone_aggregator.credentials import password_matches, read_passwords


class Admission(BaseAuthPlugin):  # type: ignore[misc]  # amqtt comes without types
    """Lets in who knows the password and sends a keepalive.

    amqtt acknowledges and then loses most messages of a client whose keepalive is 0 (measured with 0.12.1).
    """

    @dataclass
    class Config:
        """``passwords``: mosquitto's password file."""

        passwords: str = ""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._entries = read_passwords(Path(self.config.passwords))

    async def authenticate(self, *, session: Any) -> bool:
        """Whether the broker may accept this CONNECT."""
        if session.keep_alive == 0:
            print(f"{session.client_id} is refused: its keepalive is 0", file=sys.stderr, flush=True)
            return False
        entry = self._entries.get(session.username or "")
        return entry is not None and password_matches(entry, session.password or "")


async def serve(port: int, passwords: Path) -> None:
    """Run until the end of standard input."""
    plugin = f"{Admission.__module__}.{Admission.__name__}"
    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"{HOST}:{port}"}},
            "plugins": {plugin: {"passwords": str(passwords)}},
        }
    )
    await broker.start()
    await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    # Under its own name, by which amqtt loads the plugin, not as __main__.
    from undertone_simulator import amqtt_process

    asyncio.run(amqtt_process.serve(int(sys.argv[1]), Path(sys.argv[2])))
