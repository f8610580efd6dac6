"""The aggregation server: design of mechanisms, ingest, threshold, reconstruction, publication."""
