"""Files of the accepted campaigns, and the campaign of each report in the outbox.

Each accepted campaign has a file with its body. The file ``names`` is kept longer: a JSON object from the fingerprints
of reports in the outbox to their campaigns' names, so that after a reboot they are sent to the right topic.
"""

import json

from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid, Refused
from undertone_shared.report import fingerprint_of
from undertone_shared.topics import check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_device.core.ledger import Outbox, Storage
    from undertone_shared.policy import Policy

NAMES = "names"
_MOST_NAMES = 8


class CampaignFiles:
    """Campaigns in a storage. Losing any of them loses data, never privacy."""

    def __init__(self, storage: "Storage"):
        self.storage = storage
        self._names = _parse_names(storage.read(NAMES))

    def load(self, fingerprint: bytes, policy: "Policy") -> "Campaign | None":
        """Return the campaign; None if its file is missing or damaged, or if the policy does not allow it."""
        body = self.storage.read(_file(fingerprint))
        if body is None:
            return None
        try:
            campaign = Campaign(body)
            policy.check_campaign(campaign)
        except (Invalid, Refused):
            return None
        return self.remember(campaign) if campaign.fingerprint == fingerprint else None

    def save(self, campaign: Campaign) -> None:
        """Write the campaign's body to its file, and remove it from memory. Raises OSError."""
        self.storage.write(_file(campaign.fingerprint), campaign.body)
        self.remember(campaign)

    def remember(self, campaign: Campaign) -> Campaign:
        """Remember the campaign's name for its reports; return the campaign, without its body."""
        campaign.body = b""  # The file has the body, and a board needs the memory.
        self._names[campaign.fingerprint] = campaign.name
        return campaign

    def retire(self, fingerprint: bytes, following: Campaign, outbox: "Outbox") -> None:
        """Delete the file of a campaign that ``following`` has replaced.

        First save the name of each campaign that still has reports in the outbox, for at most 8 campaigns.
        """
        names: dict[bytes, str] = {}
        index = len(outbox)
        while index and len(names) < _MOST_NAMES:
            index -= 1
            name = self.name_of(outbox[index])
            if name is not None:
                names[fingerprint_of(outbox[index])] = name
        self._names = names
        try:
            if names:
                self.storage.write(NAMES, json.dumps({key.hex(): names[key] for key in names}).encode())
            self.storage.delete(_file(fingerprint))
        except OSError:
            pass  # If the disk fails, a campaign's name is lost or an unused file stays; both are harmless.
        self.remember(following)

    def name_of(self, report: bytes) -> "str | None":
        """Return the name of a report's campaign, None if it is not known any more."""
        return self._names.get(fingerprint_of(report))


def _file(fingerprint: bytes) -> str:
    return "campaign-" + fingerprint.hex()


def _parse_names(data: "bytes | None") -> "dict[bytes, str]":
    names = {}
    try:
        fields = json.loads(data or b"{}")
        if isinstance(fields, dict):
            for fingerprint in fields:
                names[bytes.fromhex(fingerprint)] = check_name("campaign", fields[fingerprint])
    except (ValueError, RuntimeError):  # Invalid is a ValueError, so that a wrong name is caught, too.
        return {}
    return names
