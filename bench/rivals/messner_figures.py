"""Measurements of 1999, for reference.

Source: Albrecht Messner, "Neuimplementierung einer transaktionalen Message Queue", Studienarbeit
1750, Universität Stuttgart, 1999: appendix C, tables C.1 to C.6; what was measured and how, section
6.1. A SPARCstation 10 with two processors of 50 MHz; client and server on the same machine, calls
over CORBA. Series of 100 messages, fewer of the largest; one transaction for each put and each get.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COUNTS", "SIZES", "TABLES", "Milliseconds"]

SIZES = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
         1_000_000)  # fmt: skip
COUNTS = dict.fromkeys(SIZES, 100) | {200_000: 50, 500_000: 50, 1_000_000: 25}


class Milliseconds(NamedTuple):
    """The milliseconds of one message, from before its transaction begins to after it ends."""

    average: float
    least: float
    most: float


def _table(*rows: tuple[float, float, float]) -> dict[int, Milliseconds]:
    return {size: Milliseconds(*row) for size, row in zip(SIZES, rows, strict=False)}


# By operation and implementation. The old one could not be measured beyond 10,000 bytes.
TABLES = {
    ("put", "old"): _table(  # C.1
        (312, 180, 473), (372, 179, 839), (608, 193, 1148), (990, 218, 1903), (1726, 261, 3371),
        (4133, 384, 8602), (8419, 619, 18072),
    ),
    ("get", "old"): _table(  # C.2
        (174, 54, 346), (231, 51, 444), (459, 54, 920), (812, 56, 1746), (1534, 59, 3124),
        (3809, 72, 8272), (7941, 85, 17517),
    ),
    ("put", "DB2"): _table(  # C.3
        (333, 311, 554), (347, 321, 613), (363, 333, 439), (380, 355, 560), (415, 387, 568),
        (445, 410, 766), (486, 465, 603), (564, 523, 790), (801, 700, 992), (1188, 1000, 1634),
        (1898, 1590, 2494), (3986, 3268, 4704), (5216, 5070, 6626),
    ),
    ("get", "DB2"): _table(  # C.4
        (302, 277, 389), (315, 298, 889), (339, 309, 581), (346, 322, 698), (361, 344, 500),
        (395, 377, 655), (425, 400, 700), (476, 454, 778), (604, 587, 834), (796, 766, 933),
        (1192, 1122, 1778), (2291, 2135, 4347), (2125, 2055, 2371),
    ),
    ("put", "own"): _table(  # C.5
        (140, 129, 336), (140, 126, 236), (147, 130, 313), (148, 130, 475), (148, 134, 312),
        (157, 147, 209), (182, 169, 259), (230, 214, 326), (361, 340, 527), (572, 545, 771),
        (1007, 966, 1410), (2579, 2209, 10115), (4311, 4263, 4491),
    ),
    ("get", "own"): _table(  # C.6
        (145, 134, 197), (141, 131, 181), (156, 138, 314), (145, 133, 345), (148, 134, 312),
        (156, 148, 224), (181, 170, 318), (219, 201, 405), (314, 301, 470), (474, 455, 661),
        (823, 786, 1089), (1790, 1712, 2599), (3320, 3294, 3374),
    ),
}  # fmt: skip
