"""Changes of a campaign that runs: what a changed plan does, which devices refuse it, and how it takes effect."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from undertone_aggregator.base.durations import utc
from undertone_aggregator.campaign.binding import (
    Change,
    Refusals,
    apply_plan,
    changes,
    cycle_after,
    refusals_of,
    version_of,
)
from undertone_aggregator.campaign.preview import check_files, epochs_of
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.history import note
from undertone_aggregator.settings.config import CampaignPlan, Config
from undertone_aggregator.settings.toml import with_option
from undertone_aggregator.store.store import NoStore, open_store
from undertone_operate.fleet.lifetimes import allowed_reports, policies_in, turns_in
from undertone_shared.errors import Invalid, Refused
from undertone_shared.policy import Policy

LENGTH = "report_slots"


@dataclass(frozen=True)
class Proposal:
    """What a changed plan does: its changes, the devices whose policies refuse it, and sentences about it.

    ``expected``: if policies refuse the new end, words about the ends that all policies allow; else "".
    """

    changes: list[Change]
    refusals: Refusals = field(default_factory=Refusals)
    notes: list[str] = field(default_factory=list)
    expected: str = ""

    @property
    def sentences(self) -> list[str]:
        """Return a sentence for each change, a sentence about refusals if policies are known, and the other
        sentences.
        """
        return [*map(str, self.changes), *([str(self.refusals)] if self.refusals.known else []), *self.notes]


def examine(home: Home, name: str, text: str) -> Proposal:
    """Return what the plan in ``text`` would change. Reads the files that the plan names.

    Raises Invalid, also for a campaign that has not begun, and for an impossible end. Raises OSError, StoreError.
    """
    config, now = home.config(home.only(name), text), int(time.time())
    check_files(config)
    meta, timeline = begun(config)
    changed = changes(meta, config.campaign, config.stream)
    if not changed:
        return Proposal(changed)
    notes = [f"warning: {sentence}" for sentence in epochs_of(config).warnings().values()]
    length = next((change for change in changed if change.name == LENGTH), None)
    if length is None or not len(timeline):
        return Proposal(changed, refusals_of(config, timeline, now), notes)
    end = _new_end(home, config, timeline, length.after - length.before, now)
    return Proposal(changed, refusals_of(config, timeline, now, end.check), [end.sentence(), *notes], end.expected())


def begun(config: Config) -> tuple[Mapping[str, str], Timeline]:
    """Return the entries of a campaign's store, and its epochs. Raises Invalid for a campaign that has not begun."""
    name, meta, timeline = config.campaign.name, {}, Timeline(())
    with contextlib.suppress(NoStore), open_store(config.store_url, campaign=name, read_only=True) as store:
        meta, timeline = store.meta(), Timeline(store.epochs())
    if "facts" not in meta:
        raise Invalid(
            f"campaign {name} has not begun, so this command has nothing to change: edit campaigns/{name}.toml instead"
        )
    return meta, timeline


def apply(home: Home, name: str, text: str, *, although_refused: bool = False) -> list[str]:
    """Make the plan in ``text`` take effect. Return sentences about the change, none if nothing changes.

    Raises Invalid for an outdated version of the plan. Without ``although_refused``, also raises Invalid for a change
    that policies of devices refuse. Raises OSError, StoreError.
    """
    with home.changing():
        return _apply(home, name, text, although_refused=although_refused)


def _apply(home: Home, name: str, text: str, *, although_refused: bool) -> list[str]:
    proposal, config = examine(home, name, text), home.config(name, text)
    with open_store(config.store_url, campaign=name) as store:
        version = version_of(store.meta())
        if proposal.changes:
            if proposal.refusals.refusing and not although_refused:
                raise Invalid(
                    f"{proposal.expected}{proposal.refusals}. Nothing was changed; --although-refused applies the"
                    " change anyway"
                )
            version = apply_plan(store, config.campaign, config.stream)
    # The plan is written even if nothing would change, because an interrupted command may have changed only the store.
    home.write_plan(name, with_option(text, "campaign", "version", version))
    if not proposal.changes:
        return []
    note(home.folder, name, f"version {version}: " + "; ".join(proposal.sentences))
    return [f"the plan was changed; version {version} is in force:", *proposal.sentences]


@dataclass(frozen=True)
class _End:
    """The change of a campaign's end from ``old`` to ``new``, both in Unix seconds.

    ``begins``: Unix second at which the epoch with the new end begins. ``first``: the campaign's first slot.
    ``before``: largest number of reports that a device may have drawn in the campaign's predecessors.
    """

    home: Home
    plan: CampaignPlan
    old: int
    new: int
    begins: int
    first: int
    before: int

    def check(self, policy: Policy) -> None:
        """Raise Refused if a device with this policy may stop before the end, because its lifetime is spent."""
        slots = self.new // self.plan.slot_seconds - self.first
        turns = self.before + -(-slots // self.plan.stride)
        if policy.lifetime and allowed_reports(policy) < turns:
            allowed = allowed_reports(policy)
            raise Refused(
                "lifetime", f"a device may have to send {turns} reports up to the new end, expected at most {allowed}"
            )

    def expected(self) -> str:
        """Return which ends all policies allow, as the beginning of a sentence; "" if all policies allow this end."""
        latest = self._latest()
        if latest >= self.new:
            return ""
        allowed = max(latest, self.old)
        return f"the new end is {utc(self.new)}, but not all devices' policies allow an end after {utc(allowed)}: "

    def sentence(self) -> str:
        """Return a sentence about the new end. If some policy does not allow it, the sentence also names the latest end
        that all policies allow.
        """
        end, latest = f"the campaign ends at {utc(self.new)} instead of {utc(self.old)}", self._latest()
        if latest >= self.new:
            return end
        return f"{end}; some policies refuse this end: the policies of all devices allow an end up to {utc(latest)}"

    def _latest(self) -> int:
        """Return the latest end that all policies allow, but at most the new end."""
        allowed = self.new
        for policy, _ in policies_in(self.home.fleet(self.plan.name)):
            allowed = min(allowed, self.begins + policy.duration_seconds)
            if policy.lifetime:
                slots = max(allowed_reports(policy) - self.before, 0) * self.plan.stride
                allowed = min(allowed, (self.first + slots) * self.plan.slot_seconds)
        return allowed


def _new_end(home: Home, config: Config, timeline: Timeline, more: int, now: int) -> _End:
    """Return the end of a campaign that gets ``more`` report slots. Raises Invalid if it cannot have this length."""
    plan, newest = config.campaign, timeline.last
    assert newest is not None
    length = f"campaign.{LENGTH} is {plan.report_slots}"
    epochs = epochs_of(config)
    if epochs.fixed_end:
        raise Invalid(f"{length}, but the campaign's length is fixed: {epochs.fixed_end}")
    successor = home.successor(plan.name)
    if successor is not None:
        raise Invalid(f"campaign {successor} succeeds {plan.name}, so the end of {plan.name} cannot change")
    learned = epochs.learning_ends(timeline)
    if learned is not None:
        end = learned + plan.report_slots * plan.slot_seconds
    else:
        end = (epochs.last_slot(timeline) + 1) * plan.slot_seconds
    # The newest epoch may have another end, if the length was changed before and no epoch has been issued since.
    old = end - more * plan.slot_seconds
    if old <= now:
        raise Invalid(
            f"{length}, but campaign {plan.name} ended at {utc(old)}, and can no longer be extended: undertone campaign"
            " succeed starts the next campaign"
        )
    begins = now
    if learned is None:
        issued = max(now, cycle_after(newest))
        extended = epochs.reissued(timeline, issued)
        if extended is None:
            earliest = issued // plan.slot_seconds + plan.lead_slots + min(plan.cycle, plan.epoch_slots)
            raise Invalid(
                f"{length}, which is too few: the campaign must end after {utc(newest.campaign.end)}, because a"
                f" campaign is not shortened, and at {utc(earliest * plan.slot_seconds)} or later, because devices"
                " accept no shorter epoch. To end the campaign now, use undertone campaign retire"
            )
        begins, end = extended.campaign.epoch, extended.campaign.end
    before = turns_in(home, home.chain(plan.name)[1:])
    return _End(home, plan, old, end, begins, timeline.epochs[0].campaign.first_slot, before)
