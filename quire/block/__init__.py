"""Blocks: runs of consecutive messages of one transaction in one queue, stored as columns."""

from .arrow import to_header_batch
from .arrow_input import runs_of_shares
from .block import Block, StreamedBlock
from .block_builder import BlockBuilder, runs_of_payloads
from .encoding import EncodedBlock, run_of_block
from .format import HEADER_BYTES
from .single_block import checked_one, encode_one, encode_streamed, payload_of_one, plain_one

__all__ = [
    "HEADER_BYTES",
    "Block",
    "BlockBuilder",
    "EncodedBlock",
    "StreamedBlock",
    "checked_one",
    "encode_one",
    "encode_streamed",
    "payload_of_one",
    "plain_one",
    "run_of_block",
    "runs_of_payloads",
    "runs_of_shares",
    "to_header_batch",
]
