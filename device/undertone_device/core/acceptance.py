"""Acceptance of campaigns: the current one, the next one, and the reasons why others were refused."""

from undertone_device.core.campaign_files import CampaignFiles
from undertone_device.core.ledger import BUILT, NO_CAMPAIGN
from undertone_shared import campaign as campaigns
from undertone_shared.errors import Invalid, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from undertone_device.core.guard import Guard
    from undertone_device.core.ledger import Ledger, Storage
    from undertone_shared.campaign import Campaign
    from undertone_shared.policy import Policy

_DAY = 86400
# A server accepts a report for at least this many seconds, and this many slots, after the report's slot: docs/wire.md.
_LATE_SECONDS = 2 * _DAY
_LATE_SLOTS = 96


class Acceptance:
    """The accepted campaigns of a device, under its owner's policy.

    ``campaign``: the current one; ``following``: the next one; both may be None. ``refusals``: number of refused
    messages by reason.
    """

    def __init__(self, policy: "Policy", storage: "Storage", ledger: "Ledger", guard: "Guard"):
        self.refusals: dict[str, int] = {}
        self.files = CampaignFiles(storage)
        self.policy = policy
        self.ledger = ledger
        self.guard = guard
        # Campaigns that may follow another one before its end, because a hand-over named them.
        self.successors: tuple[str, ...] = ()
        # The server's time in the message that `_hear` took last, and the uptime at which that message arrived.
        self._issued_at = self._heard_at = 0
        self.campaign = self.files.load(ledger.current, policy)
        self.following = self.files.load(ledger.next, policy)

    def accept(
        self, message: "bytes | memoryview", now: int, name: "str | None", alive: "Callable[[], object] | None"
    ) -> bool:
        """Process a campaign message; see `Reporter.accept`."""
        try:
            return self._accept(message, now, name, alive)
        except (Refused, Invalid) as error:
            reason = getattr(error, "reason", "invalid")
            self.refusals[reason] = self.refusals.get(reason, 0) + 1
            raise

    def _accept(
        self, message: "bytes | memoryview", now: int, name: "str | None", alive: "Callable[[], object] | None"
    ) -> bool:
        issued_at, fingerprint = campaigns.header(message)
        self.guard.advance()
        for accepted in (self.campaign, self.following):
            if accepted is not None and accepted.fingerprint == fingerprint:
                _check_name(accepted, name)
                self._hear(issued_at, now)
                return False
        # For a campaign in memory the function has returned above: its signature was verified before.
        body = campaigns.body_of(message)
        self.policy.check_signature(campaigns.digest_of(body), campaigns.signature_of(message), alive)
        campaign = campaigns.Campaign(body)
        _check_name(campaign, name)
        self.policy.check_campaign(campaign)
        if not _agree(now, issued_at):
            raise Refused("clock", "it was issued at %d, and this device's clock says %d (Unix s)" % (issued_at, now))
        if campaign.fingerprint in (self.ledger.current, self.ledger.next):
            self._restore(campaign)
            self._hear(issued_at, now)
            return True
        self.guard.start(now)
        self.promote(now)
        newest = self.following or self.campaign
        self.policy.check_succession(campaign, newest, self.ledger.last_epoch, now, self.successors)
        if self.following is not None:
            raise Refused(
                "epoch_pending",
                "the accepted epoch %d must begin first" % self.following.epoch,
            )
        self._keep(campaign, now)
        self._hear(issued_at, now)
        return True

    def _hear(self, issued_at: int, now: int) -> None:
        # A server time that agrees with the device's clock is replaced only by a later server time that also agrees, so
        # that a forged message cannot pause the device. A server time that does not agree with the clock is replaced by
        # that of the next message, so that the effect of a wrong server time or a wrong clock ends with that message.
        if not self.agrees(now) or (issued_at > self._issued_at and _agree(now, issued_at)):
            self._issued_at = issued_at
            self._heard_at = self.ledger.uptime

    def agrees(self, now: int) -> bool:
        """Return True if the device's clock is within a day of the server's last time plus the ticks since then.

        The server's last time is used for a day plus the period for which the server accepts a late report; after that
        the result is False.
        """
        campaign = self.campaign
        passed = self.ledger.uptime - self._heard_at
        late = max(_LATE_SECONDS, _LATE_SLOTS * campaign.slot_seconds if campaign else 0)
        return passed <= _DAY + late and _agree(now, self._issued_at + passed)

    def _restore(self, campaign: "Campaign") -> None:
        """Replace the lost or damaged file of a campaign that the ledger names; its budget is already charged."""
        try:
            self.files.save(campaign)
        except (OSError, MemoryError) as error:
            raise Refused("storage", "the campaign could not be stored: %s" % error)
        if campaign.fingerprint == self.ledger.current:
            self.campaign = campaign
        else:
            self.following = campaign

    def _keep(self, campaign: "Campaign", now: int) -> None:
        ledger = self.ledger
        before = (ledger.last_epoch, ledger.current, ledger.next)
        charged = (ledger.rho_period, ledger.rho, ledger.rho_since, ledger.ever_rho)
        state = self.guard.rule_state(campaign)
        if state:
            state.charge(campaign, now)
        ledger.last_epoch = campaign.epoch
        if self.campaign is None:
            ledger.current = campaign.fingerprint
            self.guard.restart()
        else:
            ledger.next = campaign.fingerprint
        try:
            # The file is written first, so that the ledger never names a campaign without a file.
            self.files.save(campaign)
            self.guard.write()
        except (OSError, MemoryError) as error:
            ledger.last_epoch, ledger.current, ledger.next = before
            ledger.rho_period, ledger.rho, ledger.rho_since, ledger.ever_rho = charged
            raise Refused("storage", "the campaign could not be stored: %s" % error)
        if self.campaign is None:
            self.campaign = campaign
        else:
            self.following = campaign

    def promote(self, now: int) -> "Campaign | None":
        """Return the current campaign, None without one. The next one becomes current when its epoch begins, or at
        once if there is no current one.
        """
        following = self.following
        if following is None or (self.campaign is not None and now < following.epoch):
            return self.campaign
        old = self.ledger.current
        self.campaign = following
        self.following = None
        self.ledger.current = following.fingerprint
        self.ledger.next = NO_CAMPAIGN
        self.guard.restart()
        if old not in (NO_CAMPAIGN, following.fingerprint):
            self.files.retire(old, following, self.ledger.outbox)
        return following


def _agree(now: int, issued_at: int) -> bool:
    return now >= BUILT and -_DAY <= now - issued_at <= _DAY


def _check_name(campaign: "Campaign", name: "str | None") -> None:
    if name is not None and campaign.name != name:
        raise Refused("topic", "campaign %s came on the topic of %s" % (campaign.name, name))
