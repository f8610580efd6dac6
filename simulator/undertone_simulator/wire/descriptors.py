"""The limit of open files; every connection needs a descriptor."""

import resource

from undertone_shared.errors import Invalid


def allow_connections(count: int) -> None:
    """Raise this process's limit of open files to `count` connections plus a reserve.

    Raises Invalid if that is not allowed.
    """
    need = count + 256
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < need:
        if hard != resource.RLIM_INFINITY and hard < need:
            raise Invalid(
                f"{count} connections need {need} open files, but this process may have {hard} at most: raise it with"
                f" `ulimit -Hn {need}` as root in this shell, a line `* hard nofile {need}` in"
                f" /etc/security/limits.conf, or LimitNOFILE={need} in a systemd unit"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
