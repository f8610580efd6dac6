"""What an upgrade of Undertone will change in a server's folder, before it changes anything."""

from collections.abc import Mapping

from undertone_aggregator.server.folder import Home
from undertone_aggregator.store import tables
from undertone_aggregator.store.migrations import FIRST
from undertone_aggregator.store.sqlite_store import copy_before, revision_in
from undertone_aggregator.store.store_address import store_address
from undertone_shared.errors import Invalid


def what_would_change(home: Home | None, stores: Mapping[str, str]) -> list[str]:
    """Return a sentence for each store that this version would change or refuse, and for each plan that it refuses.

    ``stores``: name -> address; ``home``: the server's folder to which they belong, if any. Raises Invalid, OSError.
    """
    sentences = []
    for name, url in sorted(stores.items()):
        file = store_address(url).file
        if file is None:
            sentences.append(
                f"{name}: if its database is older than revision {tables.HEAD}, the upgrade changes it to revision"
                f" {tables.HEAD}: back the database up with pg_dump first"
            )
            continue
        revision = revision_in(file)
        if revision is None or revision < FIRST:
            sentences.append(f"{name}: {file} was made by a version before 0.3.0, and no later version can read it")
        elif revision > tables.HEAD:
            sentences.append(
                f"{name}: the revision of {file} is {revision}, expected at most {tables.HEAD}: use the later version"
                " of Undertone, or restore a backup that this version made"
            )
        elif revision != tables.HEAD:
            sentences.append(
                f"{name}: the upgrade changes {file} from revision {revision} to {tables.HEAD}, and keeps a copy of the"
                f" old file in {copy_before(file)}"
            )
    if home is None:
        return sentences
    for name in home.names():
        try:
            home.config(name)
        except Invalid as wrong:
            sentences.append(f"{name}: this version refuses the plan: {wrong}")
    return sentences
