"""The store's tables, the same in SQLite and PostgreSQL. `migrations` brings new and older databases to them."""

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

# Marks a SQLite file as a store.
APPLICATION = 0x55544E31
# The newest revision of the database: the one with the tables in this module, see `migrations`.
HEAD = "0013"

# Name of the entry of `meta` that lists the groups of the table `sums`, in the order in which they were first summed.
SUMMED_GROUPS = "summed_groups"

metadata = MetaData()
# The type of row numbers: SQLite numbers rows by itself only if their type is INTEGER.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")


def _campaign(*, primary_key: bool = False, index: bool = False) -> Column[int]:
    return Column("campaign", Integer, ForeignKey("campaigns.id"), nullable=False, primary_key=primary_key, index=index)


# The revision of the tables, in one row. The table has the name that Alembic gives it.
revision = Table("alembic_version", metadata, Column("version_num", Text, primary_key=True))
# One row per campaign in this database; the name is empty until the campaign is known.
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
# epoch: Unix second of its first slot. threshold: JSON, the choice that led to its theta. decoded: JSON, decode values
# of a table mechanism. epsilon, delta: the epoch's planned cost in privacy, a fraction as text and a probability.
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
# Histograms of reports. Each row belongs to one worker, so that workers never wait for each other's rows.
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
# Histograms of n reports that arrived after their slot had settled. No published number includes them. The other
# columns are those of `partials`.
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
# Sums of `partials` over groups and workers, for settled slots up to a certain one. The store computes them from the
# partials, and readers of long series read the sums instead. counts: the histogram of all groups together. reports: the
# number of reports of each group, in the order of the campaign's entry SUMMED_GROUPS in `meta`.
sums = Table(
    "sums",
    metadata,
    _campaign(primary_key=True),
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("fingerprint", LargeBinary, primary_key=True),
    Column("kind", Integer, primary_key=True, autoincrement=False),
    Column("counts", LargeBinary, nullable=False),
    Column("reports", LargeBinary, nullable=False),
)
counters = Table(
    "counters",
    metadata,
    _campaign(primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("outcome", Text, primary_key=True),
    Column("n", BigInteger, nullable=False),
)
# The states of devices, see `undertone_aggregator.counts.device_states`. state: the state's name. is_snapshot: true if
# the data is the whole state of the worker's devices, false if it continues what the segments before it hold.
segments = Table(
    "segments",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    _campaign(index=True),
    Column("state", Text, nullable=False),
    Column("worker", Text, nullable=False),
    Column("is_snapshot", Boolean, nullable=False),
    Column("data", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
# slot: the slot in which the server noticed that n reports are missing.
losses = Table(
    "losses",
    metadata,
    _campaign(primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("grp", Text, primary_key=True),
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("n", BigInteger, nullable=False),
)
# For each group, how many reports contradict a report of the same device and slot that was counted before. grp: group.
conflicts = Table(
    "conflicts",
    metadata,
    _campaign(primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("grp", Text, primary_key=True),
    Column("n", BigInteger, nullable=False),
)
# How many deliveries were refused. slot: the slot in which the delivery arrived, whatever slot it was for.
refusals = Table(
    "refusals",
    metadata,
    _campaign(primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("reason", Text, primary_key=True),
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
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
# The operator's inventory. name: the device's name; for a forgotten device only the name's key, in hexadecimal, so that
# no name is used twice. since: Unix second at which the state began.
devices = Table(
    "devices",
    metadata,
    _campaign(primary_key=True),
    Column("name", Text, primary_key=True),
    Column("grp", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
)
# Leases of a campaign whose workers are on several machines, see `leases`. role: a partition and the number of all
# partitions, such as 3of8, or the coordinator. until: when the lease ends, Unix seconds of the database's clock. begun:
# true if the broker queues reports for the partition.
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
# most: the largest number of partitions that the worker takes.
members = Table(
    "members",
    metadata,
    _campaign(primary_key=True),
    Column("name", Text, primary_key=True),
    Column("most", Integer, nullable=False),
    Column("until", Float, nullable=False),
)
# The groups of devices, for workers on machines that do not have the groups file.
groups = Table(
    "groups",
    metadata,
    _campaign(primary_key=True),
    Column("device", Text, primary_key=True),
    Column("grp", Text, nullable=False),
)
