"""Text that a spreadsheet takes for a formula. See OWASP, "CSV Injection"."""

# A cell that begins like this is calculated and not shown.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_cell(text: str) -> str:
    """Return text for a cell: what would be a formula begins with an apostrophe, as spreadsheets mark text."""
    return f"'{text}" if text.startswith(FORMULA) else text
