"""What those raise who compare what was promised with what is there."""


class Violation(AssertionError):
    """A promise was broken."""


def check(holds: bool, words: str) -> None:
    """Raise Violation with these words where it does not hold."""
    if not holds:
        raise Violation(words)
