"""QR codes of links for joining: a sheet to print, or one picture."""

import html
import io
import time
from collections.abc import Sequence
from pathlib import Path

from undertone_aggregator.base.files import write_private
from undertone_shared.errors import Invalid

SHEET = ".html"
PICTURE = ".svg"
_LARGEST_SHEET = 10_000
_STYLE = """
body { font: 11pt/1.4 sans-serif; margin: 0; }
section { break-inside: avoid; display: flex; gap: 8mm; align-items: center; padding: 8mm; border-bottom: 1px dashed; }
svg { width: 42mm; height: 42mm; flex: none; }
p { margin: 0 0 2mm; } code { font-size: 9pt; overflow-wrap: anywhere; }
"""


def check_sheet(path: Path, links: int) -> None:
    """Check that the QR codes of this number of links can be written to this file.

    Raises Invalid for another suffix, for too many links, and without segno.
    """
    if path.suffix not in (SHEET, PICTURE):
        raise Invalid(f"--qr is {path}, expected a file whose name ends with {SHEET} or {PICTURE}")
    if path.suffix == PICTURE and links != 1:
        raise Invalid(f"--qr is {path} and --devices is {links}, expected {SHEET} for several codes")
    if links > _LARGEST_SHEET:
        raise Invalid(f"--devices is {links}, expected at most {_LARGEST_SHEET} codes on a sheet")
    try:
        import segno  # noqa: F401
    except ImportError:
        raise Invalid("QR codes need segno: pip install 'undertone-ldp[server]'") from None


def write_sheet(
    path: Path, links: Sequence[str], operator: str, about: str, expires: int, agreement: Sequence[tuple[str, str]] = ()
) -> None:
    """Write the QR codes of links to a file that only its owner can read. Raises Invalid, OSError.

    ``agreement``: (title, text) of each thing that a person agrees to, see `undertone_device.host.consent`.
    """
    if path.suffix == PICTURE:
        write_private(path, picture(links[0]))
        return
    until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(expires))
    rules = "".join(f"<p><strong>{html.escape(title)}:</strong> {html.escape(text)}</p>" for title, text in agreement)
    parts = [
        f"<section>{picture(link)}<div><p><strong>{html.escape(about)}</strong></p>"
        f"<p>{html.escape(operator)} asks you to take part. Scan this code with your phone, or open the link."
        f" The link works once, until {until}.</p><code>{html.escape(link)}</code>{rules}</div></section>"
        for link in links
    ]
    head = f'<meta charset="utf-8"><title>{html.escape(about)}</title><style>{_STYLE}</style>'
    write_private(path, f'<!doctype html>\n<html lang="en">{head}\n' + "\n".join(parts) + "\n</html>\n")


def picture(link: str) -> str:
    """Return the QR code of a link as SVG."""
    import segno

    out = io.BytesIO()
    segno.make_qr(link, error="m").save(out, kind="svg", xmldecl=False, omitsize=True)
    return out.getvalue().decode()
