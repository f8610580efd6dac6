"""The coordinator: issues a campaign's epochs, settles its slots, publishes estimates and status.

Three parts do this: `Issuing`, `Settling` and `Status`. All that they know is in the store, so a new coordinator goes
on where another one stopped.
"""

from collections.abc import Callable, Mapping

from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.context import CampaignContext, FittedModels, RetainedPublisher
from undertone_aggregator.campaign.home_assistant import removal
from undertone_aggregator.campaign.issuing import Issuing
from undertone_aggregator.campaign.settling import Settling
from undertone_aggregator.campaign.status import Status
from undertone_aggregator.campaign.strays import Strays
from undertone_aggregator.campaign.watch import CLOCK_SECONDS
from undertone_aggregator.ingest.lag import Lag
from undertone_aggregator.settings.config import Config
from undertone_aggregator.store.store import Store
from undertone_shared.topics import config_topic


class Coordinator:
    """Coordinator of a campaign. Call ``tick`` a few times per slot. ``seed``, ``clock``, ``sign``: see `Issuing`.

    ``strays``: counts the devices that follow an unknown epoch (`undertone_aggregator.campaign.strays`); the campaign's
    state uses the same counter. None: the coordinator makes its own.
    """

    def __init__(
        self,
        config: Config,
        seed: bytes,
        store: Store,
        outlet: RetainedPublisher,
        journal: Journal,
        clock: Callable[[], float] | None = None,
        sign: Callable[[bytes], bytes] | None = None,
        strays: Strays | None = None,
    ) -> None:
        self._context = CampaignContext(config, store, outlet, journal)
        self._lag = Lag(config.landing.plan(config.folder))
        models = FittedModels(store)
        self.issuing = Issuing(self._context, seed, self._lag, models, clock, sign, strays or Strays(config.campaign))
        self._settling = Settling(self._context, self.issuing, self._lag, models)
        self._status = Status(self._context, self.issuing, self._settling)
        self._now = 0
        self._retired = False

    def tick(self, now: int) -> None:
        """Do whatever is due at Unix second ``now``."""
        self._heed(now)
        self.issuing.tick(now)
        self._settling.tick(now)
        self._status.tick(now)

    def pause(self, now: int) -> None:
        """Broadcast the campaign again if that is due. Call this, and not ``tick``, while the campaign is paused.

        A device that has heard no broadcast since its start, or for days, makes no reports.
        """
        self._heed(now)
        self.issuing.keep_broadcast(now)

    def _heed(self, now: int) -> None:
        if now < self._now - CLOCK_SECONDS:
            # The wall clock was set back, so forget what was done and decide by the new time what is due.
            self._now = now
            for part in (self.issuing, self._settling, self._status):
                part.restart()
        self._now = max(now, self._now)

    def retire(self, now: int) -> None:
        """Stop broadcasting the campaign for ever, and settle the slots that are due at Unix second ``now``.

        Call this in place of ``tick`` once the campaign is retired. Reports that are still under way are counted.
        """
        if not self._retired:
            self._retired = True
            config, outlet = self._context.config, self._context.outlet
            outlet.publish(config_topic(self._context.prefix, config.campaign.name), b"", again=True)
            if config.server.home_assistant:
                topic, message = removal(config.server.home_assistant, config.campaign.name)
                outlet.publish(topic, message, again=True)
            self.status(now)
        self._settling.tick(now)
        self._status.tick(now)

    def status(self, now: int) -> None:
        """Publish, log and store the campaign's status."""
        self._status.publish(now)

    def note_broker(self, dropped: int | None, heard: Mapping[str, bytes]) -> None:
        """Raise alarms for what the broker reports, see `Status.note_broker`."""
        self._status.note_broker(dropped, heard)
