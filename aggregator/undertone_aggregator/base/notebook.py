"""How results are shown: as one line in a terminal, and as a small table in a notebook."""

import html
from abc import ABC, abstractmethod


class Summarised(ABC):
    """A result that is shown as a few facts. Its dataclasses need ``repr=False``, so that they keep this `__repr__`."""

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Return the facts to show: name -> value."""

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}: {value}" for name, value in self.facts().items())
        return f"<{type(self).__name__} {facts}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in self.facts().items()
        )
        return f"<table>{rows}</table>"
