"""Numbers with their nouns, as people read them."""


def many(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as "1 epoch" or "2 epochs". ``plural``: the plural, if it is not the noun
    with an s.
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
