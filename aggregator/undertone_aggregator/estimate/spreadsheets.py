"""Protection against text that a spreadsheet evaluates as a formula. See OWASP, "CSV Injection"."""

# A cell that begins with one of these is evaluated instead of shown.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_cell(text: str) -> str:
    """Return text for a cell; a possible formula gets an apostrophe in front, which spreadsheets use to mark text."""
    return f"'{text}" if text.startswith(FORMULA) else text
