"""The file of groups that a new campaign gets, so that an operator need not make it by hand."""

from undertone_aggregator.base.owner import give_to_owner
from undertone_aggregator.server.folder import FLEETS, Home
from undertone_aggregator.settings.groups import make_groups
from undertone_aggregator.settings.toml import value_in, with_option

GROUPS = "groups.csv"


def with_group_file(home: Home, name: str, plan: str) -> str:
    """Make an empty groups file for a new campaign, and return the campaign's plan with the file's path in it.

    A plan that already names a groups file is returned unchanged. Raises OSError.
    """
    if value_in(plan, "campaign", "groups") is not None:
        return plan
    folder = home.folder / FLEETS / name
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True)
        give_to_owner(folder, folder.parent)
    make_groups(folder / GROUPS)
    return with_option(plan, "campaign", "groups", f"{FLEETS}/{name}/{GROUPS}")
