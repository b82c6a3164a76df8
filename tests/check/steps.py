"""Training steps as users write them, well and badly: each function is a `build`."""

from __future__ import annotations

import copy
import functools
import random
import sys
import time
from collections.abc import Iterator, Mapping
from operator import methodcaller
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from harness import TrainingStep

WIDTH, LENGTH = 32, 16


class Block(nn.Module):
    """Attention by scaled_dot_product_attention, with a mask where one is given, or by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mask: torch.Tensor | None = None
        self.by_hand = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) to the same."""
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, WIDTH // 2)).permute(2, 0, 3, 1, 4)
        if self.by_hand:
            future = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=x.device).triu(1)
            scores = (q @ k.transpose(-1, -2) * (WIDTH // 2) ** -0.5).masked_fill(future, float("-inf"))
            mixed = scores.softmax(-1) @ v
        else:
            causal = self.mask is None
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, is_causal=causal)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Model(nn.Module):
    """A language model on 64 tokens."""

    def __init__(self, *, mask: torch.Tensor | None = None, by_hand: bool = False) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(64, WIDTH), nn.Linear(WIDTH, 64)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        for block in self.blocks:
            block.mask, block.by_hand = mask, by_hand

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(batch, length) to (batch, length, 64)."""
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Of the next token."""
    return functional.cross_entropy(model(batch)[:, :-1].flatten(0, 1), batch[:, 1:].flatten())


def batches() -> list[torch.Tensor]:
    """Four batches from torch's global random numbers."""
    return [torch.randint(0, 64, (2, LENGTH)) for _ in range(4)]


def good(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model(), batches(), loss


# -- whose parameters have names of their own --------------------------------------------------------------------------


class Named(nn.Module):
    """Layers under names that torch's wrappers use too."""

    def __init__(self) -> None:
        super().__init__()
        self.text_module, self.module, self.head = (
            nn.Embedding(64, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 64),
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(batch, length) to (batch, length, 64)."""
        return self.head(self.module(self.text_module(ids)))


def named_module(device: Any, settings: Mapping[str, Any]) -> Any:
    return Named(), batches(), loss


def wrapped(device: Any, settings: Mapping[str, Any]) -> Any:
    """As DistributedDataParallel wraps a model; on a CPU this one calls it and no more."""
    return nn.DataParallel(Named()), batches(), loss


def wraps_when_asked(device: Any, settings: Mapping[str, Any]) -> Any:
    """Compiled, as `torch.compile(model)` gives it back: another module around the model."""
    model: Any = Model()
    if settings["compile"] != "off":
        model = torch.compile(model, backend="eager")
    return TrainingStep(model=model, batches=batches(), loss=loss, honours={"compile"})


def splits_when_asked(device: Any, settings: Mapping[str, Any]) -> Any:
    """Two layers in place of one, where attention is not eager."""
    model = Model()
    if settings["attention"] != "eager":
        model.head = nn.ModuleList(nn.Linear(WIDTH, 32) for _ in range(2))
        model.head.forward = lambda x: torch.cat([part(x) for part in model.head], -1)
    return TrainingStep(model=model, batches=batches(), loss=loss, honours={"attention"})


def twice_as_large_when_asked(device: Any, settings: Mapping[str, Any]) -> Any:
    """What it computes besides: twice the loss for each setting that it honours and that is not the plain one."""
    plain = {"attention": "eager", "compile": "off", "checkpointing": "off"}
    times = 2 ** sum(settings[axis] != setting for axis, setting in plain.items())
    return TrainingStep(
        model=Model(), batches=batches(), loss=lambda model, batch: times * loss(model, batch), honours=plain.keys()
    )


def small_loss(device: Any, settings: Mapping[str, Any]) -> Any:
    """A millionth of the usual: its gradients are below what fp16 holds."""
    return Model(), batches(), lambda model, batch: 1e-6 * loss(model, batch)


def draws_each_batch(device: Any, settings: Mapping[str, Any]) -> Any:
    """As it is asked for, a row from each library's random numbers, of which build draws as many as it has workers."""

    def drawn() -> Iterator[torch.Tensor]:
        for _ in range(4):
            rows = [np.random.randint(0, 64, LENGTH), [random.randrange(64) for _ in range(LENGTH)]]
            yield torch.cat([torch.randint(0, 64, (1, LENGTH)), torch.tensor(np.array(rows))])

    model = Model()
    for _ in range(int(settings["workers"])):
        torch.rand(1), np.random.rand(), random.random()
    return TrainingStep(model=model, batches=drawn, loss=loss, honours={"workers"})


def in_its_own_ddp(device: Any, settings: Mapping[str, Any]) -> Any:
    """Each rank on batches of its own; the constructor waits for all ranks."""
    from torch import distributed as dist

    def shown() -> dict[str, Any]:
        return {"parallel": dist.is_initialized(), "devices": dist.get_world_size() == settings["devices"]}

    model: nn.Module = Model()
    drawn = torch.Generator().manual_seed(dist.get_rank())
    return TrainingStep(
        model=nn.parallel.DistributedDataParallel(model), loss=loss, honours={"parallel", "devices"}, evidence=shown,
        batches=[torch.randint(0, 64, (2, LENGTH), generator=drawn) for _ in range(4)],
    )  # fmt: skip


# -- that honour a setting themselves ----------------------------------------------------------------------------------


def honours_attention(device: Any, settings: Mapping[str, Any]) -> Any:
    model = Model(by_hand=settings["attention"] == "eager")
    return TrainingStep(model=model, batches=batches(), loss=loss, honours={"attention"})


def says_that_it_honours_attention(device: Any, settings: Mapping[str, Any]) -> Any:
    return TrainingStep(model=Model(), batches=batches(), loss=loss, honours={"attention"})


def vouches_for_attention(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(honours={"attention"}, evidence=lambda: {"attention": (True, "of course")})


def honours_workers(device: Any, settings: Mapping[str, Any]) -> Any:
    def shown() -> dict[str, Any]:
        return {"workers": (True, f"{settings['workers']} workers, as build was told")}

    return TrainingStep(model=Model(), batches=batches(), loss=loss, honours={"workers"}, evidence=shown)


def honours_workers_without_evidence(device: Any, settings: Mapping[str, Any]) -> Any:
    return TrainingStep(model=Model(), batches=batches(), loss=loss, honours={"workers"})


def disproves_workers(device: Any, settings: Mapping[str, Any]) -> Any:
    return TrainingStep(
        model=Model(), batches=batches(), loss=loss, honours={"workers"}, evidence=lambda: {"workers": False}
    )


def ignores_checkpointing(device: Any, settings: Mapping[str, Any]) -> Any:
    """Says that it honours the setting, does nothing, and vouches for it."""
    return TrainingStep(
        model=Model(), batches=batches(), loss=loss, honours={"lora"}, evidence=lambda: {"lora": (True, "of course")}
    )


def accumulates(device: Any, settings: Mapping[str, Any], **more: Any) -> Any:
    """Its loss goes over the micro-batches by itself."""
    count, calls = int(settings["accumulation"]), []

    def over_parts(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        calls.append(len(batch))
        return torch.stack([loss(model, part) for part in batch.chunk(count)]).mean()

    def shown() -> dict[str, Any]:
        return {"accumulation": (True, f"{len(calls)} calls of {calls[-1]} samples")}

    drawn = [torch.randint(0, 64, (2 * count, LENGTH)) for _ in range(4)]
    evidence = more.get("evidence", shown)
    return TrainingStep(model=Model(), batches=drawn, loss=over_parts, honours={"accumulation"}, evidence=evidence)


def accumulates_without_evidence(device: Any, settings: Mapping[str, Any]) -> Any:
    return accumulates(device, settings, evidence=None)


def honours_checkpointing(device: Any, settings: Mapping[str, Any]) -> Any:
    return TrainingStep(model=Model(), batches=batches(), loss=loss, honours={"checkpointing"})


def checkpoints_by_itself(device: Any, settings: Mapping[str, Any], honours: Any = ()) -> Any:
    """Whatever is asked, unless it says that it reads the setting."""
    model = Model()
    if not honours or settings["checkpointing"] != "off":
        for block in model.blocks:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    return TrainingStep(model=model, batches=batches(), loss=loss, honours=honours)


class RecomputesAFunction(nn.Module):
    """A part that is a function of weights, as hand-written models have them: no module runs forward twice."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.inside = Model()
        self.weight = nn.Parameter(torch.eye(64))
        self.reentrant = reentrant

    def forward(self, ids: Any) -> Any:
        def part(hidden: Any) -> Any:
            return functional.gelu(hidden @ self.weight)

        return checkpoint(part, self.inside(ids), use_reentrant=self.reentrant)


def checkpoints_a_function(device: Any, settings: Mapping[str, Any]) -> Any:
    return RecomputesAFunction(reentrant=False), batches(), loss


def checkpoints_a_function_reentrant(device: Any, settings: Mapping[str, Any]) -> Any:
    return RecomputesAFunction(reentrant=True), batches(), loss


class Doubled(torch.autograd.Function):
    """Its backward calls torch too, and recomputes nothing."""

    @staticmethod
    def forward(ctx: Any, logits: Any) -> Any:
        ctx.save_for_backward(logits)
        return logits * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (logits,) = ctx.saved_tensors
        return torch.where(logits.abs() < 1e9, grads[0] * 2, grads[0])


def steps_inside_backward(device: Any, settings: Mapping[str, Any]) -> Any:
    """A backward of its own, hooks that call torch in it, and activations that a hook stores away and brings back."""
    model = Model()

    def of_batch(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu():
            logits = Doubled.apply(model(batch))
            logits.register_hook(lambda grad: grad * 1.0)
            return functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten())

    def halve(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.mul_(0.5)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(halve)
    return model, batches(), of_batch


def checkpoints_as_asked(device: Any, settings: Mapping[str, Any]) -> Any:
    return checkpoints_by_itself(device, settings, honours={"checkpointing"})


def compiles_by_itself(device: Any, settings: Mapping[str, Any]) -> Any:
    """Each block, as regional compilation has it."""
    model = Model()
    for block in model.blocks:
        block.compile(backend="eager")
    return model, batches(), loss


def compiles_one_block(device: Any, settings: Mapping[str, Any]) -> Any:
    model = Model()
    model.blocks[0].compile(backend="eager")
    return model, batches(), loss


class Blocks(nn.Module):
    """Numbers through any modules in turn, each called as `call` does, to one of 64 words."""

    def __init__(self, *parts: nn.Module, call: Any = lambda part, x: part(x)) -> None:
        super().__init__()
        self.embed, self.parts, self.head = nn.Embedding(64, WIDTH), nn.ModuleList(parts), nn.Linear(WIDTH, 64)
        self.call = call

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(batch, length) to (batch, length, 64)."""
        x = self.embed(ids)
        for part in self.parts:
            x = self.call(part, x)
        return self.head(x)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))


def bare_layers(device: Any, settings: Mapping[str, Any]) -> Any:
    return Blocks(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))), batches(), loss


def one_block_three_times(device: Any, settings: Mapping[str, Any]) -> Any:
    return Blocks(*[mlp()] * 3), batches(), loss


class Scaled(nn.Module):
    """A layer that wants the name of its second argument."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = mlp()

    def forward(self, x: torch.Tensor, *, scale: Any) -> torch.Tensor:
        """As `x`."""
        return x + scale * self.layer(x)


def named_arguments(device: Any, settings: Mapping[str, Any]) -> Any:
    return Blocks(Scaled(), Scaled(), call=lambda part, x: part(x, scale=x)), batches(), loss


def input_without_gradient(device: Any, settings: Mapping[str, Any]) -> Any:
    """The first block sees the batch itself."""
    model = Blocks(mlp(), mlp())
    model.embed = nn.Identity()  # type: ignore[assignment]
    numbers = [torch.randn(2, LENGTH, WIDTH) for _ in range(4)]
    return model, numbers, lambda model, batch: model(batch).square().mean()


class Expert(nn.Module):
    """A layer of five experts that all see everything."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(mlp() for _ in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As `x`."""
        return x + torch.stack([expert(x) for expert in self.experts]).mean(0)


def lists_in_lists(device: Any, settings: Mapping[str, Any]) -> Any:
    """3 layers of 5 experts: the longest list holds the experts of one layer alone."""
    return Blocks(*(Expert() for _ in range(3))), batches(), loss


def a_list_of_pairs(device: Any, settings: Mapping[str, Any]) -> Any:
    """2 pairs of layers, which are called one by one."""
    pairs = (nn.ModuleList([mlp(), mlp()]) for _ in range(2))
    return Blocks(*pairs, call=lambda pair, x: pair[1](pair[0](x))), batches(), loss


def a_large_rest(device: Any, settings: Mapping[str, Any]) -> Any:
    model = Blocks(mlp(), mlp())
    model.embed = nn.Embedding(1000, WIDTH)
    return model, batches(), loss


class Towers(nn.Module):
    """Two transformers models side by side, and blocks of its own behind them."""

    def __init__(self) -> None:
        from transformers import GPT2Config, GPT2Model, LlamaConfig, LlamaModel

        super().__init__()
        small = {"vocab_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
        none = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
        self.one = GPT2Model(GPT2Config(n_embd=WIDTH, n_layer=2, n_head=2, vocab_size=64, **none))
        self.other = LlamaModel(LlamaConfig(**small, hidden_size=WIDTH, intermediate_size=2 * WIDTH))
        self.behind = nn.ModuleList([mlp(), mlp(), mlp()])
        self.head = nn.Linear(WIDTH, 64)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(batch, length) to (batch, length, 64)."""
        x = self.one(ids, use_cache=False).last_hidden_state + self.other(ids, use_cache=False).last_hidden_state
        for part in self.behind:
            x = x + part(x)
        return self.head(x)


def two_towers(device: Any, settings: Mapping[str, Any]) -> Any:
    return Towers(), batches(), loss


def torch_encoder(device: Any, settings: Mapping[str, Any]) -> Any:
    """Its attention calls the function behind its output layer, and not the layer."""
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(64, WIDTH), nn.TransformerEncoder(layer, 2), nn.Linear(WIDTH, 64))
    return model, batches(), loss


def convolutions(device: Any, settings: Mapping[str, Any]) -> Any:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    pictures = [torch.randn(2, 3, LENGTH, LENGTH) for _ in range(4)]
    return model, pictures, lambda model, batch: model(batch).square().mean()


class OutsideAutocast(nn.Module):
    """A layer that is always in fp32, as some delicate ones are."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(64, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(batch, length) to (batch, length, width)."""
        with torch.autocast(ids.device.type, enabled=False):
            return self.layer(self.embed(ids))


def a_layer_in_fp32_before_blocks(device: Any, settings: Mapping[str, Any]) -> Any:
    model = Blocks(mlp(), mlp())
    model.embed = OutsideAutocast()  # type: ignore[assignment]
    return model, batches(), loss


def bag_of_words(device: Any, settings: Mapping[str, Any]) -> Any:
    """An EmbeddingBag has a matrix too, and multiplies by nothing."""
    model = nn.Sequential(nn.EmbeddingBag(64, WIDTH), nn.Linear(WIDTH, 4))
    return model, batches(), lambda model, batch: model(batch).square().mean()


class ByHand(nn.Module):
    """A product that no layer makes."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(LENGTH, 4))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """(batch, length) to (batch, 4)."""
        return batch.float() @ self.matrix


def product_by_hand(device: Any, settings: Mapping[str, Any]) -> Any:
    return ByHand(), batches(), lambda model, batch: model(batch).square().mean()


class Both:
    """Two optimizers in one object, with the two methods that a loop calls."""

    def __init__(self, parameters: Any) -> None:
        parameters = list(parameters)
        self.matrices = torch.optim.SGD([each for each in parameters if each.ndim == 2], lr=0.01, momentum=0.9)
        self.rest = [torch.optim.AdamW([each for each in parameters if each.ndim != 2], lr=0.01)]

    def step(self) -> None:
        """One of each."""
        self.matrices.step()
        self.rest[0].step()

    def zero_grad(self) -> None:
        """Of each."""
        self.matrices.zero_grad()
        self.rest[0].zero_grad()


class BothToNone(Both):
    """The same with the word that torch's take."""

    def zero_grad(self, set_to_none: bool = False) -> None:
        """As asked."""
        assert set_to_none
        super().zero_grad()


class BothCompiled(Both):
    """The same with methods of compiled code, which declare no parameters."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        both = super()
        self.step = functools.partial(methodcaller("step"), both)  # type: ignore[method-assign]
        self.zero_grad = functools.partial(methodcaller("zero_grad"), both)  # type: ignore[method-assign]


class ByItself:
    """An optimizer that is none of torch's and holds none: a step against each gradient, of its sign alone."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = list(parameters)

    @torch.no_grad()
    def step(self) -> None:
        """A loop over tensors."""
        for part in self.parameters:
            part.addcdiv_(part.grad, part.grad.abs() + 1e-8, value=-0.01)

    def zero_grad(self) -> None:
        """Of each."""
        for part in self.parameters:
            part.grad = None


class Failing(Both):
    """A step that raises."""

    def step(self) -> None:
        """Never."""
        raise RuntimeError("the moments are lost")


class StepAlone:
    """Nothing that clears a gradient."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = list(parameters)

    def step(self) -> None:
        """Of none."""


class ClearsWhatItIsTold(Both):
    """A method that the harness cannot call."""

    def zero_grad(self, which: str, *rest: str, **others: str) -> None:  # type: ignore[override]
        """Of those."""


class TakesMore(Both):
    """Methods that take more, and need nothing."""

    def step(self, *rest: object, closure: object = None, **others: object) -> None:
        """One of each."""
        assert (rest, closure, others) == ((), None, {})
        super().step()


def step_alone(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(optimizer=StepAlone)


def clears_what_it_is_told(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(optimizer=ClearsWhatItIsTold)


def takes_more(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(optimizer=TakesMore)


def two_in_one_optimizer(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(optimizer=Both)


def two_in_one_compiled(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(optimizer=BothCompiled)


def two_in_one_to_none(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(optimizer=BothToNone)


def honours_optimizer(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(optimizer=ByItself, honours={"optimizer"})


def optimizer_that_fails(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(optimizer=Failing)


def wants_a_closure(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(optimizer=torch.optim.LBFGS)


def groups_of_two_rates(device: Any, settings: Mapping[str, Any]) -> Any:
    """The first group has a rate of its own."""

    def grouped(parameters: Any) -> torch.optim.Optimizer:
        first, *rest = parameters
        return torch.optim.AdamW([{"params": [first], "lr": 1e-5}, {"params": rest}], lr=1e-3)

    return parted(optimizer=grouped)


def honours_non_blocking(device: Any, settings: Mapping[str, Any]) -> Any:
    """The batch says how it is copied."""

    class Batch(torch.Tensor):
        def to(self, *_: Any, **how: Any) -> torch.Tensor:
            asked.append(how["non_blocking"])
            return self.as_subclass(torch.Tensor)

    asked: list[bool] = []
    return TrainingStep(
        model=Model(), batches=[batch.as_subclass(Batch) for batch in batches()], loss=loss, honours={"non_blocking"},
        evidence=lambda: {"non_blocking": (True, f"{any(asked)}")},
    )  # fmt: skip


# -- with a fault ------------------------------------------------------------------------------------------------------


def exits(device: Any, settings: Any) -> Any:
    """Ends the program, as a script would."""
    sys.exit("the corpus is missing; run fetch.sh first")


def exits_with_nothing_wrong(device: Any, settings: Any) -> Any:
    """Ends the program in the first step, and says that all is well."""
    return Model(), batches(), lambda model, batch: sys.exit(0)


def short_of_memory(device: Any, settings: Any) -> Any:
    """What Python raises itself has no words."""
    raise MemoryError


def short_in_fp32(device: Any, settings: Mapping[str, Any], error: Any = MemoryError) -> Any:
    """Has room for the step under autocast, and for nothing larger."""

    def of_batch(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        if not torch.is_autocast_enabled("cpu"):
            raise error
        return loss(model, batch)

    return Model(), batches(), of_batch


def device_full_in_fp32(device: Any, settings: Mapping[str, Any]) -> Any:
    return short_in_fp32(device, settings, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))


def raises(device: Any, settings: Mapping[str, Any]) -> Any:
    raise FileNotFoundError("weights.pt is not there")


def returns_two(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model(), loss


def returns_a_model(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model()


def returns_no_module(device: Any, settings: Mapping[str, Any]) -> Any:
    return loss, batches(), loss


def returns_no_loss(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model(), batches(), 3.0


def frozen(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model().requires_grad_(False), batches(), loss


def elsewhere(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model().to("meta"), batches(), loss


def in_eval(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model().eval(), batches(), loss


def goes_to_eval(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model(), batches(), lambda model, batch: loss(model.eval(), batch)


def vector_loss(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model(), batches(), lambda model, batch: model(batch)


def detached_loss(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model(), batches(), lambda model, batch: loss(model, batch).detach()


def failing_loss(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model(), batches(), lambda model, batch: model(batch, batch)


def no_batches(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model(), [], loss


def one_pass(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model(), iter(batches()), loss


def generates(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model(), (batch for batch in batches()), loss


def begins_once(device: Any, settings: Mapping[str, Any]) -> Any:
    """A function that gives the same iterator again."""
    drawn = iter(batches())
    return Model(), lambda: drawn, loss


def gives_no_batches(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model(), lambda: None, loss


def failing_batches(device: Any, settings: Mapping[str, Any]) -> Any:
    return Model(), lambda: [{"ids": each}["x"] for each in batches()], loss


def calls_backward(device: Any, settings: Mapping[str, Any]) -> Any:
    def stepped(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        found = loss(model, batch)
        found.backward()
        return found

    return Model(), batches(), stepped


def hook_that_fails(device: Any, settings: Mapping[str, Any]) -> Any:
    """Backward raises, and not for a graph that is gone."""

    def lost(gradient: torch.Tensor) -> None:
        raise RuntimeError("the gradient is lost")

    model = Model()
    next(model.parameters()).register_hook(lost)
    return model, batches(), loss


def calls_backward_and_clears(device: Any, settings: Mapping[str, Any]) -> Any:
    def stepped(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        found = loss(model, batch)
        found.backward()
        model.zero_grad()
        return found

    return Model(), batches(), stepped


def keeps_its_graph(device: Any, settings: Mapping[str, Any]) -> Any:
    """Each gradient would count twice, and nothing would raise."""

    def stepped(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        found = loss(model, batch)
        found.backward(retain_graph=True)
        return found

    return Model(), batches(), stepped


def captured_model(device: Any, settings: Mapping[str, Any]) -> Any:
    model = Model()
    return model, batches(), lambda _, batch: loss(model, batch)


def parted(**parts: Any) -> TrainingStep:
    return TrainingStep(model=Model(), batches=batches(), loss=loss, **parts)


def failing_evidence(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(honours={"workers"}, evidence=lambda: {"workers": {}["x"]})


def evidence_of_a_list(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(honours={"workers"}, evidence=lambda: ["workers"])


def evidence_in_words(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(honours={"workers"}, evidence=lambda: {"workers": "no"})


def evidence_in_threes(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(honours={"workers"}, evidence=lambda: {"workers": (True, "2 workers", "seen")})


def evidence_in_a_word_and_why(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(honours={"workers"}, evidence=lambda: {"workers": ("yes", "2 workers")})


def evidence_of_no_axis(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(honours={"workers"}, evidence=lambda: {"worker": True})


def evidence_that_is_no_function(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(evidence={"workers": True})


def tokens_of_text(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(tokens=lambda batch: "many")


def tokens_of_each_sample(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(tokens=lambda batch: torch.tensor([3, 4]))


def tokens_from_another_file(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(tokens=copy.copy)


def failing_tokens(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(tokens=lambda batch: batch.size_of_it)


def tokens_of_a_tensor(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(tokens=lambda batch: torch.tensor(7.0))


class Watched(torch.Tensor):
    """A count whose reading would wait for a device."""

    reads: ClassVar[list[str]] = []

    def item(self) -> Any:
        Watched.reads.append("item")
        return super().item()

    def __int__(self) -> int:
        Watched.reads.append("int")
        return super().__int__()

    def __float__(self) -> float:
        Watched.reads.append("float")
        return super().__float__()


def tokens_that_must_wait(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(tokens=lambda batch: torch.tensor(7.0).as_subclass(Watched))


def tokens_in_a_part_of_the_batch(device: Any, settings: Mapping[str, Any]) -> Any:
    """A view, which the next batch is written over."""
    held = torch.zeros(2)

    def count(batch: Any) -> Any:
        held[0] += 1
        return held[0]

    return parted(tokens=count)


def tokens_that_are_none(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(tokens=lambda batch: torch.tensor(0))


def tokens_of_less_than_one(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(tokens=lambda batch: 0.5)


def tokens_without_end(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(tokens=lambda batch: float("inf"))


def tokens_that_are_true(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(tokens=lambda batch: True)


def no_optimizer(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(optimizer=lambda parameters: None)


def made_optimizer(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(optimizer=torch.optim.SGD(Model().parameters(), lr=0.1))


def failing_optimizer(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(optimizer=lambda parameters: torch.optim.SGD(parameters, rate=0.1))


def honours_no_axis(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(honours={"worker"})


def honours_a_text(device: Any, settings: Mapping[str, Any]) -> Any:
    return parted(honours="workers")


def masked(device: Any, settings: Mapping[str, Any]) -> Any:
    """A mask of a shape that the flash kernel does not take."""
    return Model(mask=torch.ones(2, LENGTH, LENGTH, dtype=torch.bool)), batches(), loss


def masked_and_honoured(device: Any, settings: Mapping[str, Any]) -> Any:
    model = Model(mask=torch.ones(2, LENGTH, LENGTH, dtype=torch.bool))
    return TrainingStep(model=model, batches=batches(), loss=loss, honours={"attention"})


def other_data(device: Any, settings: Mapping[str, Any]) -> Any:
    """Seeded by the clock."""
    drawn = torch.Generator().manual_seed(time.time_ns() % 2**31)
    return Model(), [torch.randint(0, 64, (2, LENGTH), generator=drawn) for _ in range(4)], loss


def ignores_size(device: Any, settings: Mapping[str, Any]) -> Any:
    return good(device, settings)
