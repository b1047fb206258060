"""The simulated disk: directories and files, live and durable.

SD1. Names change in `entries` at once, and in `durable` when their directory is synced. At a power
    failure every name change since is kept or lost, each on its own; a rename is one change.
    So is one whose sync failed (`uncertain`), whatever was synced later, until a later change of
    the same name, or of the same file's name, is durable.
- A file has one name, unless it was linked: then a change of one of its names says nothing of the
  others.
- A file whose own bytes were synced is lost with its name if the name was not synced.
- Space is counted in pages of 4096 bytes, over all files that have a name.
"""

from __future__ import annotations

import copy
import errno
import posixpath
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from quire.testing.sim_inode import Outcome, SimInode


class SimDirectory(Struct, eq=False):
    """A directory: names to files and directories, as seen and as durable."""

    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)


Node = SimDirectory | SimInode
Naming = tuple[SimDirectory, str, Node | None]


class NameChange(Struct, frozen=True, eq=False):
    """Names set (or, with None, removed) in directories, all of them or none."""

    kind: Literal["create", "remove", "rename", "link"]
    path: str
    names: tuple[Naming, ...]
    removed: Node | None = None


class Survival(Struct, frozen=True):
    """The outcome of a power failure for one change that was not durable."""

    path: str
    change: str
    outcome: Outcome


class SimDisk:
    """The directories and files of a simulated machine."""

    def __init__(self) -> None:
        self.root = SimDirectory()
        self.pending: list[NameChange] = []  # all that are not durable, in order
        self.uncertain: set[NameChange] = set()  # those of them that no sync makes durable
        self.imaged: dict[SimInode, SimInode] = {}  # of an image: files of the disk, and its own
        self.own_bytes = 0  # of an image: what it does not share

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for name in split(path):
            if not isinstance(node, SimDirectory) or name not in node.entries:
                return None
            node = node.entries[name]
        return node

    def get(self, path: str) -> Node:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return node

    def directory(self, path: str) -> SimDirectory:
        node = self.get(path)
        if not isinstance(node, SimDirectory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return node

    def file(self, path: str) -> SimInode:
        node = self.get(path)
        if isinstance(node, SimDirectory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return node

    def parent(self, path: str) -> tuple[SimDirectory, str]:
        names = split(path)
        if not names:
            raise OSError(errno.EBUSY, "The root cannot be changed", path)
        return self.directory("/" + "/".join(names[:-1])), names[-1]

    def add(self, path: str, node: Node) -> NameChange:
        directory, name = self.parent(path)
        return NameChange("create", path, ((directory, name, node),))

    def removal(self, path: str) -> NameChange:
        node = self.get(path)
        if isinstance(node, SimDirectory) and node.entries:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        directory, name = self.parent(path)
        return NameChange("remove", path, ((directory, name, None),), removed=node)

    def renaming(self, old: str, new: str) -> NameChange:
        node = self.get(old)
        target = self.find(new)
        if isinstance(target, SimDirectory) and isinstance(node, SimInode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", new)
        if isinstance(target, SimInode) and isinstance(node, SimDirectory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", new)
        if isinstance(target, SimDirectory) and target is not node and target.entries:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", new)
        (old_directory, old_name), (new_directory, new_name) = self.parent(old), self.parent(new)
        if target is node:
            return NameChange("rename", new, ())
        names = ((old_directory, old_name, None), (new_directory, new_name, node))
        return NameChange("rename", new, names)

    def linking(self, old: str, new: str) -> NameChange:
        node = self.file(old)
        if self.find(new) is not None:
            raise FileExistsError(errno.EEXIST, "File exists", new)
        directory, name = self.parent(new)
        node.linked = True
        return NameChange("link", new, ((directory, name, node),))

    def change(self, change: NameChange) -> None:
        """Make the names what the change says, for all who look; durable later."""
        for directory, name, node in change.names:
            set_name(directory.entries, name, node)
        if change.names:
            self.pending.append(change)

    def covered_by(self, directory: SimDirectory) -> list[NameChange]:
        """The pending changes that a sync of this directory makes durable.

        A rename between directories takes with it all that came before, as a file system's
        journal does, so that name changes of one directory never become durable out of order.
        """
        waiting = [change for change in self.pending if change not in self.uncertain]
        touching = [c for c in waiting if any(d is directory for d, _, _ in c.names)]
        crossing = [c for c in touching if any(d is not directory for d, _, _ in c.names)]
        if not crossing:
            return touching
        last = waiting.index(crossing[-1])
        return [c for i, c in enumerate(waiting) if i <= last or c in touching]

    def make_durable(self, changes: list[NameChange]) -> None:
        for change in changes:
            if change in self.pending and change not in self.uncertain:
                self._make_certain(change)
                self.pending.remove(change)
                if change.removed is not None:
                    self._drop_durable_names(change.removed)
                for directory, name, node in change.names:
                    if node is not None:
                        self._drop_durable_names(node)
                    set_name(directory.durable, name, node)

    def _make_certain(self, durable: NameChange) -> None:
        """Make certain what was uncertain before about the same names, or the same file's name."""
        nodes = [node for _, _, node in durable.names if not is_linked(node)]
        if not is_linked(durable.removed):
            nodes.append(durable.removed)
        earlier = self.pending[: self.pending.index(durable)]
        for change in [change for change in earlier if change in self.uncertain]:
            left = tuple(
                naming
                for naming in change.names
                if (naming[2] is None or naming[2] not in nodes)
                and not any(naming[0] is d and naming[1] == name for d, name, _ in durable.names)
            )
            if left != change.names:
                place = self.pending.index(change)
                self.uncertain.remove(change)
                rest = [replace(change, names=left)] if left else []
                self.pending[place : place + 1] = rest
                self.uncertain.update(rest)

    def _drop_durable_names(self, node: Node) -> None:
        """A file has one name: an earlier one, whose change was never made durable, goes."""
        if is_linked(node):
            return
        for directory in self._directories(self.root, set()):
            for name in [n for n, known in directory.durable.items() if known is node]:
                del directory.durable[name]

    def _directories(self, directory: SimDirectory, seen: set[int]) -> Iterator[SimDirectory]:
        """Yield all directories that have a name, as seen or as durable."""
        if id(directory) in seen:
            return
        seen.add(id(directory))
        yield directory
        for node in [*directory.entries.values(), *directory.durable.values()]:
            if isinstance(node, SimDirectory):
                yield from self._directories(node, seen)

    def fail_sync(self, changes: list[NameChange]) -> None:
        """A failed sync of a directory: these changes are uncertain from now on (SD1)."""
        self.uncertain.update(change for change in changes if change in self.pending)

    def uncertain_paths(self) -> list[str]:
        """The paths of names and of files with changes that a failure left uncertain."""
        names = [change.path for change in self.pending if change in self.uncertain]
        return names + [path for path, inode in self.files() if inode.uncertain]

    def after_kill(self) -> SimDisk:
        """A disk of its own, with all that its process had done and nothing decided."""
        return copy.deepcopy(self)

    def image(self, earlier: SimDisk | None) -> SimDisk:
        """A copy to fail from. Files whose bytes an `earlier` one has share them."""
        known = {} if earlier is None else earlier.imaged
        image = SimDisk()
        for inode in self._inodes():
            if inode not in image.imaged:
                copied = image.imaged[inode] = inode.image(known.get(inode))
                if inode not in known or copied.durable is not known[inode].durable:
                    image.own_bytes += copied.durable.stored_bytes
        memo: dict[int, Any] = {id(inode): copied for inode, copied in image.imaged.items()}
        image.root, image.pending, image.uncertain = copy.deepcopy(
            (self.root, self.pending, self.uncertain), memo
        )
        return image

    def _inodes(self) -> Iterator[SimInode]:
        """Yield all files that have a name, had one, or may have one again; some more than once."""
        named = [node for change in self.pending for _, _, node in change.names]
        nodes = [self.root, *named, *(change.removed for change in self.pending)]
        for node in nodes:
            if isinstance(node, SimInode):
                yield node
            elif node is not None:
                for directory in self._directories(node, set()):
                    for entry in (*directory.entries.values(), *directory.durable.values()):
                        if isinstance(entry, SimInode):
                            yield entry

    def files(self) -> Iterator[tuple[str, SimInode]]:
        """Yield all files that have a name, by path."""
        yield from walk(self.root, "")

    def used_pages(self) -> int:
        return sum(len(inode.pages) for inode in {inode for _, inode in self.files()})

    def after_power_failure(
        self, random: Random, mood: Outcome | None
    ) -> tuple[SimDisk, list[Survival]]:
        """A new disk with what survived. This one stays as it is, so that one run can be
        followed by many different failures."""
        report: list[Survival] = []
        names: dict[SimDirectory, dict[str, Node]] = {}
        for change in self.pending:
            outcome = mood or draw_name_outcome(random)
            if outcome == "kept":
                for directory, name, node in change.names:
                    _take_name(names, directory, name, node)
            failed = "failed " if change in self.uncertain else ""
            report.append(Survival(change.path, f"{failed}{change.kind}", outcome))
        disk = SimDisk()
        copies: dict[int, Node] = {id(self.root): disk.root}
        self._copy(self.root, disk.root, "", names, copies, random, mood, report)
        return disk, report

    def _copy(
        self,
        old: SimDirectory,
        new: SimDirectory,
        path: str,
        names: dict[SimDirectory, dict[str, Node]],
        copies: dict[int, Node],
        random: Random,
        mood: Outcome | None,
        report: list[Survival],
    ) -> None:
        for name, node in names.get(old, old.durable).items():
            child = f"{path}/{name}"
            if id(node) in copies:
                if is_linked(node):
                    new.entries[name] = copies[id(node)]
                continue  # the rename that would have taken the other name away was lost
            if isinstance(node, SimDirectory):
                directory = SimDirectory()
                copies[id(node)] = directory
                self._copy(node, directory, child, names, copies, random, mood, report)
                new.entries[name] = directory
            else:
                inode, outcomes = node.after_power_failure(random, mood)
                inode.path = child
                copies[id(node)] = inode
                new.entries[name] = inode
                report += [Survival(child, change, outcome) for change, outcome in outcomes]
        new.durable = dict(new.entries)


def _take_name(
    names: dict[SimDirectory, dict[str, Node]],
    directory: SimDirectory,
    name: str,
    node: Node | None,
) -> None:
    """Set a name in the copies of the durable entries, made when first needed."""
    changed = names.setdefault(directory, dict(directory.durable))
    if node is not None and not is_linked(node):
        for entries in names.values():  # a file has one name: the last that survived
            for other in [n for n, known in entries.items() if known is node]:
                del entries[other]
    set_name(changed, name, node)


def is_linked(node: Node | None) -> bool:
    """Return True for a file that has, or had, two names at a time."""
    return isinstance(node, SimInode) and node.linked


def set_name(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def draw_name_outcome(random: Random) -> Outcome:
    return "kept" if random.random() < 0.5 else "lost"


@cache
def split(path: str) -> tuple[str, ...]:
    """The names on the way to a path; a relative one begins at the root."""
    normal = posixpath.normpath("/" + path)
    return tuple(name for name in normal.split("/") if name)


def walk(directory: SimDirectory, path: str) -> Iterator[tuple[str, SimInode]]:
    for name, node in sorted(directory.entries.items()):
        child = f"{path}/{name}"
        if isinstance(node, SimDirectory):
            yield from walk(node, child)
        else:
            yield child, node
