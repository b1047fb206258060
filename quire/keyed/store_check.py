"""Looking through all keyed states of a store: `quire.keyed.verify`."""

from __future__ import annotations

from typing import Final

from quire.env import Env, OsEnv
from quire.errors import NotFound, QuireError
from quire.reports.info import Report

from .keyed_reader import KeyedStore
from .keyed_state import KeyedState
from .manifest import PREFIX
from .run_files import ltds_directory

CHECKED: Final = "keyed_states"


def verify(store: KeyedStore, env: Env | None = None) -> Report:
    """Read all rows of all keyed states, and return what is missing or damaged.

    `store.admin.verify` checks the same bytes, and the rest of the store, and knows nothing of what
    they are; `quire verify` makes both. Each finding has the names of its state and its run;
    `checked` has how many states there are. Where this process does not see the store's files, as
    on another machine, each state is a warning. `env`: the one that the store was opened with, if
    it is not the machine's own.
    """
    report, machine = Report(), env or OsEnv()
    names = [name.removeprefix(PREFIX) for name in store.states.names() if name.startswith(PREFIX)]
    report.checked[CHECKED] = 0
    are_seen = machine.exists(ltds_directory(store.path))
    for name in names:
        try:
            state = KeyedState(store, name, env)
            if are_seen:
                report.findings.extend(state.verify())
            else:
                state.runs()
                report.warnings.append(
                    f"keyed state {name!r} was not checked, as its files are not seen from here: "
                    "check the store on its own machine"
                )
        except NotFound:  # dropped meanwhile
            continue
        except QuireError as error:
            report.findings.append(str(error))
        report.checked[CHECKED] += 1
    report.findings.extend(report.warnings)
    return report
