"""The reader of rocpd files: SQLite, as rocprofv3 and rocprof-sys of ROCm 7 write it, by the views in the file."""

from typing import Final

import numpy as np

from lumos_df.base.errors import TraceError
from lumos_df.schema.codes import KERNEL, MEMCPY
from lumos_df.trace import rocm_words
from lumos_df.trace.recording import ArgsSink, Attribute, RecordedDevice, Recording
from lumos_df.trace.row_collector import TID_BITS, RowCollector, sizes
from lumos_df.trace.sqlite_columns import opened
from lumos_df.trace.stored_file import StoredFile

_SPAN: Final = {"ts": '"start"', "dur": '"end" - "start"', "correlation": '"stack_id"'}
_QUEUE: Final = {"stream": 'coalesce("stream_id", "queue_id")', "process": '"pid"'}
_MESSAGE_OR_NAME: Final = (
    """coalesce(CASE WHEN json_valid("extdata") THEN json_extract("extdata", '$.message') END, "name")"""
)
"""SQL of a region's text: SQLite gives up a query where text that should be JSON is none."""
_ON_HOST: Final = {**_SPAN, "thread": f'("pid" << {TID_BITS}) | "tid"'}


def read(file: StoredFile, _: ArgsSink) -> Recording:
    """Read a rocpd file.

    Raises:
        TraceError: it cannot be read, or holds nothing that lasts.
    """
    with opened(file) as database:
        rows = RowCollector()
        regions = database.read("regions", _ON_HOST, {"category": '"category"', "name": _MESSAGE_OR_NAME})
        domains, names = regions.pop("category"), regions.pop("name")
        kinds = {domain: rocm_words.host_kind(domain) for domain in domains.unique().to_pylist() if domain}
        events = rows.add(rocm_words.by_text(domains, kinds), regions, name=rows.texts.places(names))
        rocm_words.state_collectives(rows, events, names)
        # A grid counts threads.
        packed = {
            name: " | ".join(f"({size.format(axis)} << {bits})" for axis, bits in (("x", 32), ("y", 16), ("z", 0)))
            for name, size in (("grid", '("grid_{0}" / max("workgroup_{0}", 1))'), ("block", '"workgroup_{0}"'))
        }
        gpu = {**_SPAN, **_QUEUE, "device": '"agent_type_index"', **packed}
        kernels = database.read("kernels", gpu, {"name": '"name"'})
        kernel_names = kernels.pop("name")
        for size in packed:
            kernels[size] = rows.worded(kernels[size], sizes)
        rows.add(KERNEL, kernels, name=rows.texts.places(kernel_names))
        device = """CASE "dst_agent_type" WHEN 'GPU' THEN "dst_agent_type_index" ELSE "src_agent_type_index" END"""
        sent = {**_SPAN, **_QUEUE, "device": device, "bytes": '"size"'}
        copies = database.read("memory_copies", sent, {"name": '"name"'})
        moved, words = copies.pop("bytes"), copies.pop("name")
        known = {text: rows.texts.place(rocm_words.gpu_row(text)[1]) for text in words.unique().to_pylist() if text}
        copied = rows.add(MEMCPY, copies, name=np.array([known.get(text, -1) for text in words.to_pylist()], np.int32))
        rows.state(Attribute.BYTES_MOVED, copied, moved)
        if rows.empty:
            raise TraceError(f"{file.name}: a rocpd file in which nothing lasts; record with rocprofv3 --sys-trace")
        where = "WHERE \"type\" = 'GPU'"
        numbers = database.numbers("rocpd_info_agent", {"index": '"type_index"'}, where)["index"].tolist()
        products = database.texts("rocpd_info_agent", 'coalesce("product_name", "name")', where).to_pylist()
        return rows.recording(
            dialect="rocpd",
            broken_texts=database.broken_texts,
            left_out=database.damage,
            clock_origin_ns=0,
            devices=tuple(RecordedDevice(number, name) for number, name in zip(numbers, products, strict=False)),
            truncated=bool(database.damage),
        )
