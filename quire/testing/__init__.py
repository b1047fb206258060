"""A simulated machine for tests of Quire and of what is built on it."""

from quire.testing.sim_calls import Call, CallLog, Fault, SimulatedCrash
from quire.testing.sim_crash import enumerate_crashes
from quire.testing.sim_disk import Survival
from quire.testing.sim_env import TALLY, SimEnv
from quire.testing.sim_file import SimFile

__all__ = [
    "TALLY",
    "Call",
    "CallLog",
    "Fault",
    "SimEnv",
    "SimFile",
    "SimulatedCrash",
    "Survival",
    "enumerate_crashes",
]
