"""Objects: named bytes in an object store or a directory, which an archive is made of."""

from .exclusive import create_own, probe
from .opening import check_outside, is_place_of, open_objects
from .seam import ObjectBytes, ObjectInfo, Objects

__all__ = [
    "ObjectBytes",
    "ObjectInfo",
    "Objects",
    "check_outside",
    "create_own",
    "is_place_of",
    "open_objects",
    "probe",
]
