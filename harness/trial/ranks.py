"""Which process of a trial this is, and how the ranks find each other (the variables are torchrun's)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from harness.experiment.axes import Setting


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among the processes of its trial."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    @classmethod
    def from_environment(cls) -> Ranks:
        """As torchrun and the launcher set it; one process where nothing is set."""
        read = {"rank": 0, "local_rank": 0, "world_size": 1}
        return cls(**{name: int(os.environ.get(name.upper(), default)) for name, default in read.items()})


def processes_of(settings: Mapping[str, Setting]) -> int:
    """How many processes a cell needs: one a device, except that `dp` drives all its devices from one process."""
    return 1 if settings.get("parallel") == "dp" else int(settings.get("devices", 1))


def needs_group(settings: Mapping[str, Setting]) -> bool:
    """Whether the processes must be connected: several of them, or an engine that wants a group of one."""
    engine = settings.get("zero", "off") != "off" or settings.get("precision") == "ds-bf16"
    return engine or processes_of(settings) > 1 or settings.get("parallel") in ("ddp", "fsdp", "pipeline")


def connect(ranks: Ranks, device: Any) -> None:
    """Join the process group (nccl on GPUs, gloo on the CPU)."""
    import torch.distributed as dist

    if "MASTER_ADDR" not in os.environ:
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        os.environ["MASTER_PORT"] = "0" if ranks.world_size == 1 else os.environ.get("MASTER_PORT", "29500")
    os.environ.update(RANK=str(ranks.rank), LOCAL_RANK=str(ranks.local_rank), WORLD_SIZE=str(ranks.world_size))
    on_gpu = device.type == "cuda"
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        rank=ranks.rank,
        world_size=ranks.world_size,
        timeout=timedelta(seconds=120),
        device_id=device if on_gpu else None,
    )


def gather(value: Any, ranks: Ranks) -> list[Any]:
    """Every rank's value, in order of rank, on every rank."""
    if ranks.world_size == 1:
        return [value]
    import torch.distributed as dist

    values: list[Any] = [None] * ranks.world_size
    dist.all_gather_object(values, value)
    return values


def settle(ranks: Ranks) -> None:
    """Wait until every rank has come out of the last collective: one that left while another still read from it would
    end that one's trial, as gloo takes a closed connection for a fault."""
    if ranks.world_size == 1:
        return
    from torch.distributed.distributed_c10d import _get_default_store

    with contextlib.suppress(RuntimeError):  # the rank that holds the store is gone: all have said that they are out
        store = _get_default_store()
        store.set(f"claimbench/settled/{ranks.rank}", "")
        store.wait([f"claimbench/settled/{rank}" for rank in range(ranks.world_size)])


def disconnect() -> None:
    """Leave the group, if there is one."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
