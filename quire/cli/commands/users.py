"""Commands for users of a served store: the file that `quire serve --users` has."""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from quire.cli.command import JSON, USERS, Command, argument
from quire.cli.printing import print_json, print_table
from quire.cli.typed_values import limits, seconds
from quire.env import OsEnv
from quire.errors import InvalidArgument
from quire.libraries.late_imports import importing

if TYPE_CHECKING:
    from quire.remote.access.users_document import Grant
    from quire.remote.access.users_file import DocumentChange, UsersFile

_USER: Final = argument("name", metavar="USER")
_NAME: Final = argument("name", metavar="NAME", help="a user, or role:ROLE")
_GRANTS: Final = (
    argument("rights", nargs="?", metavar="RIGHTS", help="some of put,get,browse,manage,admin"),
    argument("targets", nargs="*", metavar="KIND:NAMES", help="as queue:orders or queue:bills.*"),
)
_KINDS: Final = (
    "RIGHTS are put, get, browse, manage, admin, with commas. KIND is queue, alias, state,\n"
    "session, schedule, listener, graph, store, or * for all of them; NAMES is a name, or the\n"
    "beginning of names with a * behind it. NAME is a user, or role:ROLE: rights by a name."
)
_DAY_SECONDS: Final = dt.timedelta(days=1).total_seconds()


def _file(options: argparse.Namespace) -> UsersFile:
    with importing():
        from quire.remote.access.users_file import UsersFile

    return UsersFile(OsEnv(), options.path)


def _change(options: argparse.Namespace, change: DocumentChange, *, create: bool = False) -> None:
    _file(options).change(change, create=create)


def _changes() -> Any:
    with importing():
        from quire.remote.access import user_changes

    return user_changes


def _add(options: argparse.Namespace) -> None:
    change = partial(
        _changes().add_user,
        name=options.name,
        roles=options.role or (),
        certificates=options.certificate or (),
    )
    _change(options, change, create=True)


def _remove(options: argparse.Namespace) -> None:
    _change(options, partial(_changes().remove_user, name=options.name))


def _lock(options: argparse.Namespace) -> None:
    _change(options, partial(_changes().lock_user, name=options.name, locked=True))


def _unlock(options: argparse.Namespace) -> None:
    _change(options, partial(_changes().lock_user, name=options.name, locked=False))


def _grants(options: argparse.Namespace) -> list[Grant]:
    """Return the grants of the line. Raises InvalidArgument."""
    with importing():
        from quire.remote.access.users_document import Grant

    if options.rights is not None and not options.targets:
        raise InvalidArgument(f"{options.rights}: say on what, as queue:orders or queue:*")
    return [Grant.of(options.rights, target) for target in options.targets]


def _grant(options: argparse.Namespace) -> None:
    changes, grants = _changes(), _grants(options)
    if not grants and options.role is None:
        raise InvalidArgument("give rights and names, as put queue:orders, or --role ROLE")

    def change(document: Any) -> Any:
        if grants:
            document = changes.grant(document, options.name, grants)
        if options.role is not None:
            document = changes.give_role(document, options.name, options.role)
        return document

    _change(options, change)


def _revoke(options: argparse.Namespace) -> None:
    changes, grants = _changes(), _grants(options)
    is_role = options.name.startswith(changes.ROLE)
    if not grants and options.role is None and not is_role:
        raise InvalidArgument("give rights and names, as put queue:orders, or --role ROLE")

    def change(document: Any) -> Any:
        if grants:
            document = changes.revoke(document, options.name, grants)
        if options.role is not None:
            document = changes.take_role(document, options.name, options.role)
        if not grants and options.role is None:
            document = changes.remove_role(document, options.name.removeprefix(changes.ROLE))
        return document

    _change(options, change)


def _token(options: argparse.Namespace) -> None:
    changes = _changes()
    if options.revoke is not None:
        _change(options, partial(changes.remove_token, name=options.name, key_id=options.revoke))
        return
    with importing():
        from quire.remote.access.tokens import UserToken

    env = OsEnv()
    now_us, expires = env.now_us(), None
    if options.days is not None:
        span = dt.timedelta(seconds=options.days * _DAY_SECONDS)
        expires = dt.datetime.fromtimestamp(now_us // 1_000_000, dt.UTC) + span
    token = UserToken.draw(env)
    add = partial(changes.add_token, name=options.name, token=token, now_us=now_us, expires=expires)
    _change(options, add)
    print(token.text)


def _limit(options: argparse.Namespace) -> None:
    values, defaults = limits(options.limits)
    change = partial(_changes().limit, name=options.name, values=values, defaults=defaults)
    _change(options, change)


def _list(options: argparse.Namespace) -> None:
    document = _file(options).read()
    users: dict[str, dict[str, Any]] = {
        name: {
            "roles": list(user.roles),
            "grants": _words(user.grants),
            "tokens": [
                {
                    "key_id": entry.key_id,
                    "expires": None if entry.expires is None else entry.expires.isoformat(),
                }
                for entry in user.tokens
            ],
            "certificates": list(user.certificates),
            "locked": user.locked,
            "limits": document.limits.get(name, {}),
        }
        for name, user in document.users.items()
    }
    roles = {name: _words(grants) for name, grants in document.roles.items()}
    if options.json:
        of_others = {at: each for at, each in document.limits.items() if at not in users}
        print_json({"users": users, "roles": roles, "limits": of_others})
        return
    rows = [("NAME", "ROLES", "RIGHTS", "TOKENS", "CERTIFICATES", "LOCKED")]
    rows += [
        (
            name,
            _cell(user["roles"]),
            _cell(user["grants"]),
            _cell(_token_words(token) for token in user["tokens"]),
            _cell(user["certificates"]),
            "locked" if user["locked"] else "-",
        )
        for name, user in users.items()
    ]
    rows += [(f"role:{name}", "-", _cell(grants), "-", "-", "-") for name, grants in roles.items()]
    print_table(rows)
    for at, values in document.limits.items():
        words = (f"{name}={_limit_words(each)}" for name, each in values.items())
        print(f"limits of {'all users' if at == '*' else at}: {', '.join(words)}")


def _limit_words(value: float | None) -> str:
    """Return a value as `quire user limit` takes it."""
    return "none" if value is None else repr(value).removesuffix(".0")


def _words(grants: Iterable[Grant]) -> list[str]:
    return [f"{','.join(right.value for right in each.rights)} {each.target}" for each in grants]


def _token_words(token: dict[str, Any]) -> str:
    return token["key_id"] if token["expires"] is None else f"{token['key_id']} {token['expires']}"


def _cell(words: Iterable[str]) -> str:
    return "; ".join(words) or "-"


def _command(name: str, help: str, run: Any, *arguments: Any, more: str = "") -> Command:
    return Command(f"user {name}", help, run, arguments, more, place=USERS)


COMMANDS: Final = (
    _command(
        "add",
        "add a user of a served store, and make the file where there is none",
        _add,
        _USER,
        argument("--role", action="append", metavar="ROLE", help="give a role; may be repeated"),
        argument(
            "--certificate",
            action="append",
            metavar="NAME",
            help="let in who has a certificate with this name, as CN=anna or DNS:anna.example",
        ),
        more="  quire user add users.json anna\n"
        "  quire user grant users.json anna put queue:orders\n"
        "  quire user token users.json anna",
    ),
    _command("rm", "remove a user, and end the user's connections", _remove, _USER),
    _command("ls", "list users and roles, without secrets", _list, JSON),
    _command(
        "grant",
        "give rights or a role to a user, or rights to a role",
        _grant,
        _NAME,
        *_GRANTS,
        argument("--role", metavar="ROLE", help="give the user this role"),
        more=_KINDS,
    ),
    _command(
        "revoke",
        "take rights or a role from a user, or rights from a role",
        _revoke,
        _NAME,
        *_GRANTS,
        argument("--role", metavar="ROLE", help="take this role from the user"),
        more=f"{_KINDS}\nA role alone (role:ROLE) is removed.",
    ),
    _command(
        "token",
        "make a token for a user and print it, this once; or end one",
        _token,
        _USER,
        argument("--days", type=seconds, metavar="N", help="it expires after so many days"),
        argument("--revoke", metavar="KEY_ID", help="end this token of the user, and make none"),
        more="A user may have two at a time: make the second, let programs have it, end the first.",
    ),
    _command(
        "limit",
        "set what a user, each user of a role, or each user at all may have in use",
        _limit,
        argument("name", metavar="NAME", help="a user, or role:ROLE, or '*' for all users"),
        argument("limits", nargs="+", metavar="LIMIT=VALUE", help="as connections=10, bytes=64M"),
        more="none is no limit, default sets it here no more. LIMIT is one of docs/security.md.\n\n"
        "  quire user limit users.json anna connections=10 puts_per_second=100\n"
        "  quire user limit users.json '*' request_bytes=32M",
    ),
    _command("lock", "let a user in no more, and end the user's connections", _lock, _USER),
    _command("unlock", "let a user in again", _unlock, _USER),
)
