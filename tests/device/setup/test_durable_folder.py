"""Only one process at a time uses a device's folder."""

import gc

import pytest

from undertone_device.setup.durable_folder import Lock
from undertone_shared.errors import Invalid


def test_a_second_holder_is_refused_until_the_first_lets_go(tmp_path):
    first = Lock(str(tmp_path))
    with pytest.raises(Invalid, match="is in use by another process"):
        Lock(str(tmp_path))
    first.release()
    Lock(str(tmp_path)).release()
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_folder_that_is_not_there_is_one_error_and_no_more(tmp_path):
    with pytest.raises(FileNotFoundError):
        Lock(str(tmp_path / "absent"))
    gc.collect()
