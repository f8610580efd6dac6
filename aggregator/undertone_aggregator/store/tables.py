"""The store's tables, the same in SQLite and PostgreSQL; `migrations` brings older and new databases to this state."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

# The application id that marks a SQLite file as a store.
APPLICATION = 0x55544E31
# The revision of these tables: the newest in `migrations`.
HEAD = "0009"

metadata = MetaData()
# SQLite numbers rows automatically only if the type is INTEGER.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")


def _campaign(*, primary_key: bool = False, index: bool = False) -> Column[int]:
    return Column("campaign", Integer, ForeignKey("campaigns.id"), nullable=False, primary_key=primary_key, index=index)


# Campaigns, one row each; the name is empty until the campaign is known.
campaigns = Table(
    "campaigns",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),
)
meta = Table(
    "meta",
    metadata,
    _campaign(primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
# Epochs. epoch: Unix second of its first slot. threshold: JSON, the choice that led to its theta. decoded: JSON, decode
# values of a table mechanism. epsilon, delta: planned privacy cost, a fraction and a probability.
epochs = Table(
    "epochs",
    metadata,
    _campaign(primary_key=True),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("issued_at", BigInteger, nullable=False),
    Column("threshold", Text),
    Column("decoded", Text),
    Column("epsilon", Text),
    Column("delta", Float),
    UniqueConstraint("campaign", "fingerprint"),
)
# Counts. Each worker writes rows of its own, so that workers never wait for each other.
partials = Table(
    "partials",
    metadata,
    _campaign(primary_key=True),
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("fingerprint", LargeBinary, primary_key=True),
    Column("kind", Integer, primary_key=True, autoincrement=False),
    Column("grp", Text, primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("counts", LargeBinary, nullable=False),
)
# Reports that came after their slot had settled, in no published number; n: their number. Otherwise like `partials`.
late = Table(
    "late",
    metadata,
    _campaign(primary_key=True),
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("fingerprint", LargeBinary, primary_key=True),
    Column("kind", Integer, primary_key=True, autoincrement=False),
    Column("grp", Text, primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("counts", LargeBinary, nullable=False),
    Column("n", BigInteger, nullable=False),
)
counters = Table(
    "counters",
    metadata,
    _campaign(primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("outcome", Text, primary_key=True),
    Column("n", BigInteger, nullable=False),
)
seen = Table(
    "seen",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    _campaign(index=True),
    Column("worker", Text, nullable=False),
    Column("is_snapshot", Boolean, nullable=False),
    Column("data", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
chains = Table(
    "chains",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    _campaign(index=True),
    Column("worker", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
sequences = Table(
    "sequences",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    _campaign(index=True),
    Column("worker", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
# Missing reports. slot: the slot in which it was noticed that n reports are missing.
losses = Table(
    "losses",
    metadata,
    _campaign(primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("grp", Text, primary_key=True),
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("n", BigInteger, nullable=False),
)
# Reports that contradict a counted one, by group; stores from before revision 0007 have groups only from then on.
conflicts = Table(
    "conflicts",
    metadata,
    _campaign(primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("grp", Text, primary_key=True),
    Column("n", BigInteger, nullable=False),
)
audit = Table(
    "audit",
    metadata,
    _campaign(primary_key=True),
    Column("device", Text, primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
    Column("outcome", Text, nullable=False),
)
# The operator's inventory. name: for a forgotten device only its key in hexadecimal, so that no name is given twice.
# since: Unix second at which the state began.
devices = Table(
    "devices",
    metadata,
    _campaign(primary_key=True),
    Column("name", Text, primary_key=True),
    Column("grp", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
)
# Leases of a campaign with workers on several machines, see `leases`. role: a partition's number and count, as 3of8, or
# the coordinator. until: end of the lease, in Unix seconds of the database's clock. begun: True if the broker stores
# reports for the partition.
leases = Table(
    "leases",
    metadata,
    _campaign(primary_key=True),
    Column("role", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("until", Float, nullable=False),
    Column("begun", Boolean, nullable=False),
)
# Workers. most: the largest number of partitions that the worker takes.
members = Table(
    "members",
    metadata,
    _campaign(primary_key=True),
    Column("name", Text, primary_key=True),
    Column("most", Integer, nullable=False),
    Column("until", Float, nullable=False),
)
# The groups of devices, for workers on machines without the groups file.
groups = Table(
    "groups",
    metadata,
    _campaign(primary_key=True),
    Column("device", Text, primary_key=True),
    Column("grp", Text, nullable=False),
)
