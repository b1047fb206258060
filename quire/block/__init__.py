"""Blocks: runs of consecutive messages of one transaction in one queue, stored as columns."""

from .arrow import to_header_batch
from .arrow_input import runs_of_shares
from .block import Block
from .builder import BlockBuilder
from .encode import EncodedBlock, run_of_block
from .given import check_block
from .pack import Part, pack, slices_to_arrow, split
from .single import encode_one, payload_of_one

__all__ = [
    "Block",
    "BlockBuilder",
    "EncodedBlock",
    "Part",
    "check_block",
    "encode_one",
    "pack",
    "payload_of_one",
    "run_of_block",
    "runs_of_shares",
    "slices_to_arrow",
    "split",
    "to_header_batch",
]
