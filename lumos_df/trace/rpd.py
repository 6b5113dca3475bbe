"""The reader of RPD files: SQLite, as ROCm's rocmProfileData writes it [its schema, version 2]."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lumos_df.base.errors import TraceError
from lumos_df.schema.codes import ANNOTATION, NULL, OTHER_KIND, RUNTIME
from lumos_df.trace import rocm_words
from lumos_df.trace.recorded_processes import last_places
from lumos_df.trace.recording import ArgsSink, Attribute, Recording
from lumos_df.trace.row_collector import NESTED, PROFILER, TID_BITS, RowCollector, sizes
from lumos_df.trace.sqlite_columns import opened
from lumos_df.trace.stored_file import StoredFile

_SPAN: Final = {"ts": '"start"', "dur": '"end" - "start"'}
_TEXTS: Final = "rocpd_string"
_TEXT: Final = f'(SELECT string FROM {_TEXTS} WHERE id = "{{}}")'
_MARKER: Final = "UserMarker"
"""Name of a range of roctx, whose text is its arguments."""
_CALL: Final = r"^_*(?:hip|hsa|nccl)[A-Z]"
"""What else has a name is work of the recorder."""


def read(file: StoredFile, _: ArgsSink) -> Recording:
    """Read an RPD file.

    Raises:
        TraceError: it cannot be read, or holds nothing that lasts.
    """
    with opened(file) as database:
        if _TEXTS not in database.tables:
            raise TraceError(
                f"{file.name}: an RPD file without the table {_TEXTS}: nothing says which rows are kernels, nor their "
                "names; record with runTracer.sh"
            )
        rows = RowCollector()
        calls = database.read(
            "rocpd_api",
            {**_SPAN, "correlation": '"id"', "pid": '"pid"', "tid": '"tid"'},
            {"name": f"nullif({_TEXT.format('apiName_id')}, '{_MARKER}')", "args": _TEXT.format("args_id")},
        )
        names, texts = calls.pop("name"), calls.pop("args")
        launches = database.numbers("rocpd_api_ops", {"call": '"api_id"', "op": '"op_id"'})
        marks = np.asarray(pc.is_null(names))
        called = np.asarray(pc.fill_null(pc.match_substring_regex(names, _CALL), False))
        process = calls.pop("pid")
        events = rows.add(
            np.where(marks, ANNOTATION, np.where(called, RUNTIME, OTHER_KIND)),
            calls,
            thread=process << TID_BITS | calls.pop("tid"),
            name=rows.texts.places(pc.coalesce(names, texts)),
            lane=np.where(marks | called, NESTED, PROFILER),
        )
        copies = database.numbers("rocpd_copyapi", {"call": '"api_ptr_id"', "bytes": '"size"'})
        place, known = last_places(copies["call"], calls["correlation"])
        rows.state(Attribute.BYTES_MOVED, events[known], copies["bytes"][place[known]])

        ops = database.read(
            "rocpd_op",
            {**_SPAN, "device": '"gpuId"', "stream": '"queueId"', "id": '"id"'},
            {"described": f"nullif({_TEXT.format('description_id')}, '')", "kind": _TEXT.format("opType_id")},
        )
        described, kinds = ops.pop("described"), ops.pop("kind")
        meaning = {text: rocm_words.gpu_row(text) for text in kinds.unique().to_pylist() if text}
        words = pa.array([meaning[text][1] if text else None for text in kinds.to_pylist()], pa.string())
        place, known = last_places(launches["op"], ops.pop("id"))
        ops["correlation"] = np.where(known, np.append(launches["call"], 0)[place], NULL)
        place, known = last_places(calls["correlation"], ops["correlation"])
        first = int(process[0]) if len(process) else 0
        packed = {"grid": "grid", "block": "workgroup"}
        shapes = database.numbers(
            "rocpd_kernelapi",
            {"call": '"api_ptr_id"'}
            | {name: f'("{word}X" << 32) | ("{word}Y" << 16) | "{word}Z"' for name, word in packed.items()},
        )
        at, launched = last_places(shapes["call"], ops["correlation"])
        rows.add(
            rocm_words.by_text(kinds, {text: kind for text, (kind, _) in meaning.items()}),
            ops,
            process=np.where(known, np.append(process, first)[place], first),
            name=rows.texts.places(pc.coalesce(described, words)),
            **{name: rows.worded(np.where(launched, np.append(shapes[name], 0)[at], NULL), sizes) for name in packed},
        )
        monitor = database.read(
            "rocpd_monitor",
            {"ts": '"start"', "gpu": '"deviceId"', "value": '"value"'},
            {"name": '"monitorType"'},
            tail="WHERE \"deviceType\" = 'gpu'",
        )
        monitored = monitor.pop("name")
        rows.counters(monitor, rows.texts.places(monitored))
        if rows.empty:
            raise TraceError(f"{file.name}: an RPD file in which nothing lasts; record with runTracer.sh")
        return rows.recording(
            dialect="rpd",
            broken_texts=database.broken_texts,
            left_out=database.damage,
            clock_origin_ns=0,
            truncated=bool(database.damage),
        )
