"""What a run keeps: a parameter's value and gradient, wherever sharding or an engine has them, and activations.

For evidence: outside the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: In `model_state_bytes` of a GPU: weights that forward gathered from shards and still held at its end. The allocator
#: counted them with the activations, which are without them.
GATHERED = "gathered"


def gradient_of(parameter: Any) -> Any:
    """The gradient between backward and the optimizer's step, or None.

    Under DeepSpeed it is gathered: every rank must ask for the same parameters in the same order.
    """
    if parameter.grad is not None or not (hasattr(parameter, "ds_id") or hasattr(parameter, "_hp_mapping")):
        return parameter.grad
    from deepspeed.utils import safe_get_full_grad

    return safe_get_full_grad(parameter)


def shard_of(tensor: Any) -> Any:
    """This rank's part of a tensor that FSDP divides; any other tensor as it is."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def entries_of(gradient: Any) -> Any:
    """A gradient's entries on this rank as a plain tensor: of a sparse one, as embeddings may have, those it has."""
    part = shard_of(gradient)
    return part.coalesce().values() if part.is_sparse else part


def value_of(parameter: Any) -> Any:
    """The weights that this rank holds: all of them, or its shard."""
    if hasattr(parameter, "ds_tensor"):
        return parameter.ds_tensor
    return shard_of(parameter)


def plain_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What has storages: a plain tensor itself, of a sparse one its parts; nothing of a layout that is not known."""
    import torch

    if tensor.layout is torch.strided:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()


class SavedActivations:
    """Counts the bytes that autograd keeps for backward, on any device: each storage once, parameters left out."""

    def __init__(
        self, parameters: Iterable[torch.Tensor], *, leaving_out: Callable[[torch.Tensor], bool] = lambda _: False
    ) -> None:
        """Begin to count where the context is entered; `leaving_out` says which tensors are no matter."""
        import torch

        # a sharded parameter has no storage of its own: its gathered form is told apart when it is saved
        plain = [parameter for parameter in parameters if not hasattr(parameter, "to_local")]
        self._known = {parameter.untyped_storage().data_ptr() for parameter in plain}
        self._leaving_out = leaving_out
        self._seen: dict[int, int] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        import torch

        if tensor.layout is not torch.strided:
            for part in plain_parts(tensor):
                self._pack(part)
            return tensor
        whole = tensor if tensor._base is None else tensor._base
        if type(tensor) is torch.Tensor and not isinstance(whole, torch.nn.Parameter):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self._known and not self._leaving_out(tensor):
                self._seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    @property
    def bytes(self) -> int:
        """In all."""
        return sum(self._seen.values())

    def __enter__(self) -> SavedActivations:
        self._hooks.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._hooks.__exit__(*exception)
