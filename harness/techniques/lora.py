"""Low-rank adapters on frozen weights (LoRA, arXiv 2106.09685)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from harness.environment import Environment
from harness.experiment.axes import Axis
from harness.experiment.cell import Cell
from harness.techniques.base import Evidence, Inert, Stage, Technique
from harness.techniques.kept import gradient_of, value_of

if TYPE_CHECKING:
    import torch

    from harness.trial.training import TrainingRun

#: Which modules of a model type the words of `lora_targets` stand for. GPT-2 holds query, key and value in one matrix.
_TARGETS = {
    "all": {
        "gpt2": ["c_attn", "c_proj", "c_fc"],
        "": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    },
    "qv": {"gpt2": ["c_attn"], "": ["q_proj", "v_proj"]},
}


class Lora(Technique):
    """peft's LoRA, scaled by twice the rank, without dropout."""

    axes = (
        Axis(
            name="lora",
            default="off",
            settings={"off": "all weights are trained"},
            number=int,
            minimum=1,
            maximum=1024,
            meaning="rank of the adapters; all else is frozen",
            documents=("D3",),
        ),
        Axis(
            name="lora_targets",
            default="all",
            settings={
                "all": "query, key, value, output, gate, up and down projections",
                "qv": "query and value projections, as in the paper",
            },
            meaning="which weights get an adapter",
            documents=("D3",),
        ),
    )
    stage = Stage.MODEL
    packages = ("peft",)
    requirement = "peft"
    proof = "share of weights trained, a gradient for every adapter, B matrices no longer zero"

    def active(self, cell: Cell) -> bool:
        return cell["lora"] != "off"

    def requires(self, environment: Environment, cell: Cell) -> str | None:
        if cell["lora"] != "off" and not environment.has("peft"):
            return f"lora={cell['lora']} needs peft; pip install peft"
        if cell["lora"] == "off" and cell["lora_targets"] != "all":
            return f"lora_targets={cell['lora_targets']} has no effect without adapters; set lora to a rank"
        return None

    def apply(self, cell: Cell, run: TrainingRun) -> None:
        if cell["lora"] == "off":
            return
        from peft import LoraConfig, get_peft_model

        rank = cell.number("lora")
        by_type = _TARGETS[str(cell["lora_targets"])]
        targets = by_type.get(str(getattr(run.config, "model_type", "")), by_type[""])
        if run.own is not None:
            targets = _present(targets, run)
        config = LoraConfig(
            r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=targets, bias="none",
            task_type="CAUSAL_LM" if run.own is None else None,
        )  # fmt: skip
        _seed(run)
        run.model = get_peft_model(run.model, config)
        run.model.train()
        run.backward = _refusing_nothing(run.backward)

    def evidence(self, cell: Cell, run: TrainingRun) -> Evidence | None:
        trainable = {name: p for name, p in run.plain_model.named_parameters() if p.requires_grad}
        adapters = {name: p for name, p in trainable.items() if "lora_" in name}
        others = len(trainable) - len(adapters)
        trained = run.parameter_counts["trainable"] / run.parameter_counts["total"]
        missing = _without_gradient(run, adapters)
        still_zero = [name for name, p in adapters.items() if "lora_B" in name and not value_of(p).any()]
        dtypes = Counter(str(p.dtype).removeprefix("torch.") for p in run.plain_model.parameters())
        facts = {
            "trainable_share": trained, "adapters": len(adapters), "without_gradient": len(missing),
            "zero_b": len(still_zero), "parameter_dtypes": dict(dtypes),
        }  # fmt: skip
        if not adapters or others:
            seen = f"there are {len(adapters)} adapter weights and {others} others are trained"
            reason = f"lora={cell['lora']} was set, but {seen}"
            return Evidence(holds=False, word=f"{len(adapters)} adapters", facts=facts, reason=reason)
        if missing or still_zero:
            seen = f"{len(missing)} of {len(adapters)} weights have no gradient, {len(still_zero)} B matrices are zero"
            reason = f"lora={cell['lora']} trains nothing: {seen}"
            return Evidence(holds=False, word="not trained", facts=facts, reason=reason)
        return Evidence(holds=True, word=f"{100 * trained:.2f}% trained", facts=facts)


def _present(targets: list[str], run: TrainingRun) -> list[str]:
    """Those of the targets that a model of the user's has."""
    names = {name.rpartition(".")[2] for name, _ in run.model.named_modules()}
    present = [target for target in targets if target in names]
    if not present:
        raise Inert(
            f"lora={run.cell['lora']} cannot be applied from outside: the model has none of the layers "
            f"{', '.join(targets)}; put the adapters on in build, add 'lora' to honours, and prove it in evidence()"
        )
    return present


def _seed(run: TrainingRun) -> None:
    """The adapters' A matrices are random: drawn from the trial's seed on every rank."""
    import torch

    torch.manual_seed(run.spec.seed)


def _refusing_nothing(backward: Any) -> Any:
    """With reentrant checkpointing and no gradient at its inputs, the loss itself has none (LoRA#120): say so."""

    def call(loss: torch.Tensor) -> None:
        if not loss.requires_grad:
            raise Inert("lora trains nothing: no gradient flows (reentrant checkpointing needs input_gradients=on)")
        backward(loss)

    return call


def _without_gradient(run: TrainingRun, adapters: dict[str, Any]) -> list[str]:
    """Names of adapter weights that one more step leaves without a gradient."""
    if run.own_gradients:
        return []
    found: list[str] = []
    run.before_optimizer.insert(0, lambda: found.extend(n for n, p in adapters.items() if gradient_of(p) is None))
    run.step()
    del run.before_optimizer[0]
    return found
