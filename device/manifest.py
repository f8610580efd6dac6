"""A board's modules for frozen firmware: `undertone device compile --manifest` writes it."""

# ruff: noqa: F821
# mypy: ignore-errors

package(
    "undertone_shared",
    (
        "__init__.py",
        "campaign.py",
        "checks.py",
        "ed25519.py",
        "entropy.py",
        "errors.py",
        "gaussian.py",
        "mechanism.py",
        "notation.py",
        "policy.py",
        "report.py",
        "scalar.py",
        "schedule.py",
        "stream.py",
        "stream_policy.py",
        "table.py",
        "topics.py",
        "truncation.py",
    ),
    base_path="../shared",
    opt=3,
)
package(
    "undertone_device",
    (
        "__init__.py",
        "acceptance.py",
        "arrive.py",
        "assembly.py",
        "campaign_files.py",
        "client.py",
        "clock.py",
        "config.py",
        "guard.py",
        "ledger.py",
        "packets.py",
        "reporter.py",
        "reset.py",
        "settings.py",
        "slot_value.py",
        "socket_stream.py",
        "storage.py",
        "stream_state.py",
        "stream_transport.py",
        "tls_context.py",
        "units.py",
    ),
    base_path=".",
    opt=3,
)
