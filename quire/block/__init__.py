"""Blocks: runs of consecutive messages of one transaction in one queue, stored as columns."""

from .arrow import to_header_batch
from .arrow_input import runs_of_shares
from .block import Block, StreamedBlock
from .builder import BlockBuilder
from .encode import EncodedBlock, run_of_block, with_no_priority
from .format import HEADER_BYTES
from .given import check_block
from .pack import Part, pack, slices_to_arrow, split, with_payloads
from .row_block import RowBlock, head_bytes, header_arrays_of, no_rows, reaches_of, read_head
from .row_builder import RowBuilder
from .row_input import Rows, is_row, one_row, rows_of, rows_of_block
from .row_part import StoredBlock, read_columns
from .single import checked_one, encode_one, encode_streamed, payload_of_one, plain_one

__all__ = [
    "HEADER_BYTES",
    "Block",
    "BlockBuilder",
    "EncodedBlock",
    "Part",
    "RowBlock",
    "RowBuilder",
    "Rows",
    "StoredBlock",
    "StreamedBlock",
    "check_block",
    "checked_one",
    "encode_one",
    "encode_streamed",
    "head_bytes",
    "header_arrays_of",
    "is_row",
    "no_rows",
    "one_row",
    "pack",
    "payload_of_one",
    "plain_one",
    "reaches_of",
    "read_columns",
    "read_head",
    "rows_of",
    "rows_of_block",
    "run_of_block",
    "runs_of_shares",
    "slices_to_arrow",
    "split",
    "to_header_batch",
    "with_no_priority",
    "with_payloads",
]
