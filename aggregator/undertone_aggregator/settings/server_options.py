"""[store] and [server]: where counts are stored, and how the server works."""

from dataclasses import dataclass

from undertone_aggregator.settings.broker_options import topic_prefix
from undertone_aggregator.settings.options import Checked, boolean, host_names, integer, listen_at, option, text
from undertone_shared.topics import SHARDS


@dataclass(frozen=True, kw_only=True)
class StoreOptions(Checked):
    """[store]: where counts are stored."""

    TABLE = "store"

    path: str = option(
        "undertone.sqlite", "the store: a file, relative to this one, or postgresql://user@host/database", text
    )
    audit: bool = option(
        False, "true: store one row per distinct report with its outcome, for undertone verify", boolean
    )


@dataclass(frozen=True, kw_only=True)
class ServerOptions(Checked):
    """[server]: how this process works."""

    TABLE = "server"

    workers: int = option(
        1, "number of workers that take in reports; if there are several, each is a process", integer(1, SHARDS)
    )
    partitions: int = option(8, "postgresql: number of parts into which devices are divided, for the workers of all "
                             "machines; each worker takes one or more parts, so give at least the largest number of "
                             "workers",
                             integer(1, SHARDS))  # fmt: skip
    lease_seconds: int = option(15, "postgresql: seconds after which another worker replaces a silent one",
                                integer(1, 3600))  # fmt: skip
    batch: int = option(8000, "most reports per transaction", integer(1, 100_000))
    signing_key: str = option("signing.key", "the file with the key that signs campaigns, made by undertone "
                              "init; without it they are not signed, and only devices with \"insecure\": true in "
                              "their policy accept them",
                              text)  # fmt: skip
    batch_milliseconds: int = option(50, "milliseconds for which a batch waits for more reports; up to about twice as "
                                     "many while many reports arrive", integer(1, 10_000))  # fmt: skip
    health: str | None = option(
        None, "ADDRESS:PORT of /metrics, /healthz and /readyz, such as 127.0.0.1:9464", listen_at
    )
    page: str | None = option(None, "ADDRESS:PORT of the page and its API; a proxy may put a path before it", listen_at)
    page_names: tuple[str, ...] = option((), "further host names of the page, such as a proxy's; IP addresses, "
                                         "localhost and this machine's own name always work", host_names)  # fmt: skip
    page_token: str | None = option(None, "a file of mode 0600 with the token with which a person can pause, resume "
                                    "and retire campaigns and revoke devices on the page; absent: nobody can",
                                    text)  # fmt: skip
    alerts: str | None = option(None, "a file of mode 0600 with one address per line to which alerts go, as Apprise's "
                                "URLs such as mailtos:// and json://, see undertone doctor --alert-test",
                                text)  # fmt: skip
    alert_seconds: int = option(60, "seconds for which a problem must last before an alert is sent, and be over before "
                                "the message of its end is sent; also the least time between messages",
                                integer(0, 3600))  # fmt: skip
    home_assistant: str | None = option(
        None, "Home Assistant's discovery prefix; Home Assistant then shows the series", topic_prefix
    )
