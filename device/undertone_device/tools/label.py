"""A label for a device's case, in one SVG file: the name, also as a QR code, the campaigns, and two limits of epsilon.

No secret is on it.
"""

import html
from pathlib import Path

from undertone_device.host import consent
from undertone_device.host.words import DEFAULT, read_words
from undertone_device.setup.assembly import read_policy
from undertone_device.setup.config import read_config
from undertone_shared.errors import Invalid

_SIZE = 5


def label(folder: Path) -> str:
    """Return the label of the device whose configuration is in ``folder``, 62 mm wide. Raises Invalid without segno."""
    try:
        import segno
    except ImportError:
        raise Invalid("labels need segno: pip install 'undertone-device[boards]'") from None
    config = read_config(str(folder / "device.json"))
    code = segno.make_qr(f"undertone:{config.name}", error="m")
    side = code.symbol_size(scale=_SIZE, border=2)[0]
    picture = code.svg_inline(scale=_SIZE, border=2)
    words = read_words(DEFAULT)["consent"]
    bounds = consent.Bounds(read_policy(config))
    lines = (
        ("700 22px", config.name),
        ("14px", f"campaign {', '.join(config.campaigns)}"),
        ("14px", f"any 24 h: ε {consent.figure(bounds.day, words)}, life: ε {consent.figure(bounds.life, words)}"),
        ("14px", "Undertone"),
    )
    texts = "".join(
        f'<text x="{side + 10}" y="{side // 3 + 28 * i}" style="font:{font} sans-serif">{html.escape(text)}</text>'
        for i, (font, text) in enumerate(lines)
    )
    width = side + 10 + 14 * max(len(text) for _, text in lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {side}" width="62mm">'
        f'<rect width="100%" height="100%" fill="#fff"/>{picture}{texts}</svg>\n'
    )
