"""What those raise who compare what was promised with what is there."""


class Violation(AssertionError):
    """A promise was broken."""
