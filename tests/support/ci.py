"""What a missing tool or data set means: a skip that says how to get it, a failure under CI."""

import os
from typing import NoReturn

import pytest

CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")


def unavailable(reason: str) -> NoReturn:
    if CI:
        pytest.fail(f"{reason} (CI=true: a skip here would hide what was not tested)", pytrace=False)
    pytest.skip(reason)
