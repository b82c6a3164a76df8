"""The parameters of a model by name, without what wrappers put into the names: what two builds of it share."""

from __future__ import annotations

from torch import nn

#: The whole shape of each parameter, by name.
Shapes = dict[str, tuple[int, ...]]

#: What torch's wrappers are called in the names of parameters. `module`, of its parallel ones: see `parameters_of`.
_WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})


def parameters_of(model: nn.Module) -> dict[str, nn.Parameter]:
    """A model's parameters by the names that they have without wrappers.

    What a wrapper puts into a name is a whole component of it. `module` may be an attribute of the user's own: it goes
    only from the front, and only where all names begin with it, so that no two become the same.
    """
    found = {
        tuple(part for part in name.split(".") if part not in _WRAPPERS): parameter
        for name, parameter in model.named_parameters()
    }
    while found and all(name[0] == "module" and len(name) > 1 for name in found):
        found = {name[1:]: parameter for name, parameter in found.items()}
    return {".".join(name): parameter for name, parameter in found.items()}


def shapes_of(model: nn.Module) -> Shapes:
    """The shapes of `parameters_of`; of what is sharded the whole."""
    return {name: tuple(parameter.shape) for name, parameter in parameters_of(model).items()}
