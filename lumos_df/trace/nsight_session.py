"""What a report of Nsight Systems says of itself: versions, GPUs, its clock, and the launcher's word on the rank."""

from typing import Any, Final, NamedTuple

from lumos_df.schema import within
from lumos_df.schema.codes import NONE, NULL
from lumos_df.trace.recording import RecordedDevice
from lumos_df.trace.stored_tables import StoredTables

_RANK: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
_WORLD_SIZE: Final = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Variables by which torchrun, Slurm, Open MPI and PMI tell a process its rank, and how many there are."""
_KEPT: Final = (*_RANK, *_WORLD_SIZE, "LOCAL_RANK", "CUDA_VISIBLE_DEVICES")
"""The environment holds credentials: nothing else of it is stored."""
_SCHEMA: Final = "EXPORT_SCHEMA_VERSION"
_KNOWN_SCHEMAS: Final = ("2.", "3.")
"""How the versions begin whose columns are known."""
_ENVIRONMENT: Final = "ENVIRONMENT_VARIABLE"


class Session(NamedTuple):
    """What a report says of itself."""

    clock_origin_ns: int
    """Unix time of the report's time 0; 0 where it does not say."""
    rank: int
    """Rank of the process that was launched under the profiler, or NONE."""
    world_size: int | None
    devices: tuple[RecordedDevice, ...]
    device_of_gpu: dict[int, int]
    """CUDA's index of each GPU by Nsight's own."""
    versions: dict[str, Any]
    metadata: dict[str, Any]
    warnings: tuple[str, ...]


def session(database: StoredTables) -> Session:
    """Read what a report says of itself."""
    exported = _pairs(database, "META_DATA_EXPORT") or _pairs(database, "EXPORT_META_DATA")
    captured = _pairs(database, "META_DATA_CAPTURE")
    environment = dict(value.split("=", 1) for key, value in captured if key.endswith(_ENVIRONMENT) and "=" in value)
    kept = {key: environment[key] for key in _KEPT if key in environment}
    start = database.numbers("TARGET_INFO_SESSION_START_TIME", {"ns": '"utcEpochNs"'})["ns"]
    gpus = database.numbers("TARGET_INFO_GPU", {"id": 'coalesce("id", 0)', "cuda": 'coalesce("cuDevice", "id", 0)'})
    names = database.texts("TARGET_INFO_GPU", '"name"').to_pylist()
    versions = {key: value for key, value in exported if key in {"EXPORT_PRODUCT_VERSION", _SCHEMA}}
    schema = versions.get(_SCHEMA) or _KNOWN_SCHEMAS[-1]
    return Session(
        clock_origin_ns=int(start[0]) if len(start) and start[0] != NULL else 0,
        rank=_number(environment, _RANK, NONE),
        world_size=_number(environment, _WORLD_SIZE, None),
        devices=tuple(
            RecordedDevice(number, name) for number, name in sorted(zip(gpus["cuda"].tolist(), names, strict=False))
        ),
        device_of_gpu=dict(zip(gpus["id"].tolist(), gpus["cuda"].tolist(), strict=True)),
        versions=versions,
        metadata={"environment": kept},
        warnings=()
        if schema.startswith(_KNOWN_SCHEMAS)
        else (f"schema {schema} is not known: what it has in other columns than 2 and 3 do is missing",),
    )


def _pairs(database: StoredTables, table: str) -> list[tuple[str, str]]:
    names, values = (database.texts(table, column) for column in ('"name"', '"value"'))
    return [(name, value) for name, value in zip(names.to_pylist(), values.to_pylist(), strict=False) if name and value]


def _number(environment: dict[str, str], names: tuple[str, ...], otherwise: Any) -> Any:
    numbers = (within(int(environment[name]), 32) for name in names if environment.get(name, "").isdecimal())
    return next((number for number in numbers if number is not None), otherwise)
