"""Makes the benchmarks' PostgreSQL server available to tests."""

from undertone_studies.private_postgres import MISSING, Postgres, folder_of_binaries

__all__ = ["MISSING", "Postgres", "folder_of_binaries"]
