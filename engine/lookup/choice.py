"""The choice of messages by id, by selector or by template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from quire.engine.queues.queue import Queue
from quire.errors import InvalidArgument
from quire.interface.lookup import check_key_of
from quire.libraries.late_modules import stand_in
from quire.messages.message_id import MessageId
from quire.selectors.template import Template

if TYPE_CHECKING:
    from quire.selectors import condition as conditions
    from quire.selectors.condition import MessageCondition
else:
    conditions = stand_in("quire.selectors.condition")  # with the first selector

_FIELDS: Final = set(Template.__struct_fields__)


class Choice(NamedTuple):
    """One message, by its id, or those for which a condition holds; neither: all."""

    message_id: int | None = None
    condition: MessageCondition | None = None


ALL = Choice()


def choice_of(queue: Queue, where: object) -> Choice:
    """Return the choice that `where` means in a queue. Raises InvalidArgument, InvalidSelector.

    A template comes from a client as the mapping of its fields.
    """
    if where is None:
        return ALL
    if isinstance(where, (int, MessageId)):
        return Choice(message_id=check_key_of(where))
    if isinstance(where, Mapping) and where.keys() <= _FIELDS:
        where = Template(**where)
    if not isinstance(where, (str, Template)):
        raise InvalidArgument(
            f"where {where!r:.100}: give a selector (a str), a quire.Template, or a message's id"
        )
    return Choice(
        condition=conditions.condition(where, queue.schema, is_volatile=queue.is_volatile)
    )
