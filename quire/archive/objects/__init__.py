"""Objects: named bytes in an object store or a directory, which an archive is made of."""

from .seam import Buffer, ObjectInfo, Objects

__all__ = ["Buffer", "ObjectInfo", "Objects"]
