"""[outlet]: in mode direct, the broker to which the server publishes estimates, if any."""

from dataclasses import dataclass

from undertone_aggregator.settings.broker_options import BrokerOptions, check_user
from undertone_aggregator.settings.options import Checked, boolean, host_name, integer, option, text
from undertone_shared.errors import Invalid


@dataclass(frozen=True, kw_only=True)
class OutletOptions(Checked):
    """[outlet]: with mode = "direct", a broker for estimates and status. Devices do not connect to it."""

    TABLE = "outlet"

    host: str | None = option(None, "name or address of a broker that gets estimates as well; absent: no broker gets "
                              "them", host_name)  # fmt: skip
    port: int = option(0, "the port; 0 means 8883 with TLS and 1883 without TLS", integer(0, 65535))
    user: str | None = option(None, "this server's user name at that broker", check_user)
    password_file: str | None = option(None, "a file with this server's password there", text)
    ca_file: str | None = option(None, "the authority that signed the broker's certificate; absent: one that this "
                                 "machine trusts", text)  # fmt: skip
    insecure: bool = option(False, "true allows a broker elsewhere without TLS, which shows the password to the "
                            "network", boolean)  # fmt: skip
    keepalive: int = option(30, "seconds between MQTT keepalive packets", integer(5, 3600))

    def check_together(self) -> None:
        """Raise Invalid if an option is missing that the others need, or if options contradict each other."""
        given = [name for name in ("host", "user", "password_file") if getattr(self, name) is not None]
        missing = [name for name in ("host", "user", "password_file") if name not in given]
        if missing and (given or self.ca_file is not None):
            raise Invalid(f"{missing[0]} is missing in [outlet], which needs host, user and password_file")
        if self.insecure and self.ca_file is not None:
            raise Invalid("outlet.insecure is true, but outlet.ca_file turns TLS on: remove one of them")

    def check_source(self, broker: BrokerOptions) -> None:
        """Raise Invalid if an outlet is given although reports come from a broker: estimates go to that broker."""
        if self.host is not None and broker.source.broker:
            raise Invalid(
                f"[outlet] is for broker.mode = 'direct', but broker.mode is {broker.mode!r}: estimates go to"
                " the broker of [broker]; remove [outlet]"
            )
