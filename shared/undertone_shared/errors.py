"""The two exceptions with which shared code refuses an input."""


class Invalid(ValueError):
    """An input is not what it claims to be; the message says, for people, what is wrong."""


class Refused(Exception):
    """A well-formed campaign or hand-over asks for more than the device's policy or ledger allows.

    ``reason`` is one word, for counters (`undertone_shared.policy` lists those for campaigns); the message is for
    people.
    """

    def __init__(self, reason: str, message: str):
        super().__init__(message)
        self.reason = reason
