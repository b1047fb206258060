"""Values by key, which transactions set: `store.states`."""

# mypy: disable-error-code="empty-body"
# The body of a row is its call.

from __future__ import annotations

from quire.calls.call_table import Subject, change, look


class States(Subject, path="states"):
    """`store.states`: what transactions have set (`Transaction.set_value`), as it is committed.

    A state is a name with values by key. What every method raises is told with `Store`.
    """

    __slots__ = ()

    @look(needs="browse state:name")
    def get(self, name: str, key: str) -> bytes | None:
        """A value of a state (see `Transaction.set_value`), as it is committed; None: none is.

        Raises InvalidArgument.
        """

    @look(needs="browse state:name", shows="keys")
    def items(self, name: str) -> dict[str, bytes]:
        """All values of a state, in the order of their keys, as they are between two commits.

        Empty where there is none. Raises InvalidArgument.
        """

    @look(needs="", shows="states")
    def names(self) -> list[str]:
        """The names of all states that have a value, in their order."""

    @change(needs="manage state:name")
    def drop(self, name: str) -> int:
        """Delete all values of a state; how many they were.

        With one commit; with several where they are too many for one record of the journal: that is
        a million keys, fewer with smaller segments. Raises KeyHeld where a prepared transaction
        sets one of them, InvalidArgument (also for the state of a
        session: remove that instead).
        """
