"""Batches of a user's own step: their masks, their sizes and their kinds."""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict, namedtuple
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch

from harness.trial import custom, own_batches
from harness.trial.outcome import Outcome
from harness.trial.own_step import OwnStep
from harness.trial.spec import TrialResult
from tests.check import batch_steps, test_own_step
from tests.check.batch_steps import ROWS
from tests.training import masks_in_graphs

STEPS = Path(__file__).with_name("batch_steps.py")
pytestmark = pytest.mark.train


def trial(build: str, **settings: Any) -> TrialResult:
    return test_own_step.trial(build, file=STEPS, **settings)


@pytest.mark.parametrize("build", ["padded_later", "padded_inside", "masked_by_the_loss", "end_to_end", "in_windows"])
def test_a_mask_of_the_step_stays_whatever_kernel_is_asked_for(build: str) -> None:
    """It was dropped where the first batch had no zeros in an `attention_mask` at its top: other losses by 0.01."""
    plain, held = trial(build, attention="sdpa"), trial(build, attention="sdpa-math")
    assert (held.outcome, held.reason) == (Outcome.OK, "")
    assert held.measured["losses"] == pytest.approx(plain.measured["losses"], abs=1e-5)


def test_without_a_mask_a_compiled_model_is_given_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flash takes none on a GPU (on a CPU it does), and transformers writes out the causal one when it is compiled."""
    masks = masks_in_graphs(monkeypatch)
    result = trial("unmasked", attention="sdpa-flash", compile="default")
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert "flash" in result.evidence["attention"]["word"]
    assert set(masks) == {None}
    masks.clear()
    assert trial("unmasked", attention="sdpa", compile="default").outcome is Outcome.OK
    assert masks
    assert None not in masks, "as transformers does it"


@pytest.mark.parametrize("build", ["padded_later", "end_to_end", "in_windows"])
def test_a_mask_of_the_step_stays_in_a_compiled_model(build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = masks_in_graphs(monkeypatch)
    plain, held = trial(build, attention="sdpa"), trial(build, attention="sdpa-math", compile="default")
    assert (held.outcome, held.reason) == (Outcome.OK, "")
    assert held.measured["losses"] == pytest.approx(plain.measured["losses"], abs=1e-5)
    assert masks
    assert None not in masks


@pytest.mark.parametrize(
    "batch",
    [
        lambda ids, mask: {"input_ids": ids, "attention_mask": mask},
        lambda ids, mask: ({"picture": torch.zeros(2, 9), "input_ids": ids, "attention_mask": mask}, mask),
        lambda ids, mask: {"places": torch.zeros(2, 9).long(), "input_ids": ids, "attention_mask": mask},
    ],
)
def test_tokens_are_the_ids_wherever_they_lie_in_a_batch(batch: Any) -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    tokens, samples, useful = own_batches.sizes(batch(torch.ones(2, 3).long(), mask), None)
    assert (tokens, samples, int(useful)) == (6, 2, 4)


def test_a_number_a_sample_is_no_token() -> None:
    """Classes, or lengths, before the ids."""
    assert own_batches.sizes((torch.tensor([7, 8]), torch.ones(2, 3).long()), None) == (6, 2, 6)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_ids_are_whole_numbers_of_any_width(dtype: torch.dtype) -> None:
    assert own_batches.sizes((torch.zeros(2, 9), torch.ones(2, 3, dtype=dtype)), None) == (6, 2, 6)


@pytest.mark.parametrize(
    ("batch", "samples"), [((torch.zeros(2, 9), torch.zeros(5)), 2), ({"x": torch.tensor(3.0)}, 1)]
)
def test_without_ids_the_samples_of_the_first_tensor_count(batch: Any, samples: int) -> None:
    assert own_batches.sizes(batch, None) == (samples,) * 3


def test_what_the_step_counts_itself_holds_no_padding() -> None:
    assert own_batches.sizes(torch.ones(2, 3).long(), lambda batch: 5) == (5, 2, 5)


def test_a_mask_of_another_shape_tells_nothing_of_padding() -> None:
    """One of who attends to whom has more entries than there are tokens."""
    batch = {"input_ids": torch.ones(2, 3).long(), "attention_mask": torch.ones(2, 1, 3, 3)}
    assert own_batches.sizes(batch, None) == (6, 2, 6)


def test_a_function_may_give_what_is_gone_through_by_number() -> None:
    class Three:
        def __getitem__(self, number: int) -> torch.Tensor:
            return torch.full((1,), [5.0, 6.0, 7.0][number])

    given: Any = Three
    batches = own_batches.endless(given, "my.py:build", STEPS)
    assert [float(next(batches)) for _ in range(4)] == [5.0, 6.0, 7.0, 5.0]


def test_the_end_of_each_pass_is_known() -> None:
    ends: list[int] = []
    batches = own_batches.endless([torch.zeros(1)] * 3, "my.py:build", STEPS, ends)
    for _ in range(8):
        next(batches)
    assert ends == [3, 6]


@pytest.mark.parametrize(
    ("build", "why"),
    [
        ("casts_by_itself", "the step computes in 16 bits by itself (Linear put out bfloat16, as under autocast)"),
        ("draws_noise", "the loss draws random numbers"),
        ("drops_by_function", "the loss draws random numbers"),
        ("keeps_its_model", "build gives other weights at its second call"),
        ("draws_on", "build gives other data at its second call"),
    ],
)
def test_what_is_no_reference_is_not_compared_with(build: str, why: str) -> None:
    """Each was `fast but different`, by 0.0045 to 1.3."""
    result = trial(build, gradient_check=True)
    assert result.outcome is Outcome.OK
    assert why in result.measured["gradient_check"]["skipped"]


def test_a_step_that_honours_precision_is_compared_in_fp32() -> None:
    """Its weights in bf16 are other numbers than those of the reference, and no other weights."""
    found = trial("rounds_its_weights", precision="bf16", gradient_check=True).measured["gradient_check"]
    assert found["error"] == found["eager_error"]
    assert 1e-4 < found["error"] < 0.05


def test_whether_a_loss_draws_is_noted() -> None:
    assert [trial(build).measured["figures"]["draws"] for build in ("plain", "draws_noise")] == [False, True]


def test_the_last_batch_of_a_pass_may_be_smaller() -> None:
    """It was inert: the mean was compared."""
    result = trial("loader_that_drops_nothing", batch_size=8)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence["sequence_length"]["word"] == "8 samples of 1 tokens, 4 in the last batch of a pass"


def test_batches_that_are_smaller_inside_a_pass_are_not_of_the_size() -> None:
    result = trial("uneven_everywhere", batch_size=8)
    assert result.outcome is Outcome.INERT
    assert "batches hold 3 to 8 samples, not batch_size=8 throughout" in result.reason


def test_ids_that_the_loss_shifts_are_one_longer() -> None:
    result = trial("ids_to_shift", sequence_length=32, batch_size=ROWS)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.evidence["sequence_length"]["word"] == "4 samples of 33 tokens"


@pytest.mark.parametrize(
    ("build", "samples"),
    [("of_a_dataclass", 8), ("that_move_themselves", 8), ("of_a_tokenizer", ROWS), ("graph", 8)],
)
def test_batches_of_other_kinds_are_trained_on_and_counted(build: str, samples: int) -> None:
    result = trial(build, batch_size=samples, gradient_check=True)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.measured["gradient_check"]["error"] < 1e-5


@pytest.mark.parametrize("build", ["of_a_dataclass", "that_move_themselves", "graph"])
def test_a_batch_of_another_kind_moves_and_is_known_by_its_values(build: str) -> None:
    step = custom.call(getattr(batch_steps, build), "a step", torch.device("cpu"), {}, seed=1)
    first, second = step.batches[0], step.batches[1]
    there = own_batches.moved(first, torch.device("meta"), non_blocking=False)
    assert type(there) is type(first)
    assert {part.device.type for _, part in own_batches.tensors(there)} == {"meta"}
    assert {part.device.type for _, part in own_batches.tensors(first)} == {"cpu"}, "the user's own stays"
    assert own_batches.batch_hash(first) != own_batches.batch_hash(second)
    assert own_batches.batch_hash(first) == own_batches.batch_hash(copy.deepcopy(first))


Pair = namedtuple("Pair", ["x", "y"])


class Record(UserDict[str, Any]):
    """A mapping of a class of its own."""


class OnADevice(UserDict[str, Any]):
    """A mapping on a device, to which it takes all that is put into it: tensordict's TensorDict, where that has one."""

    def __init__(self, device: torch.device, **parts: Any) -> None:
        self.device = device
        super().__init__(**parts)

    def __setitem__(self, name: str, part: torch.Tensor) -> None:
        super().__setitem__(name, part.to(self.device))

    def to(self, device: torch.device) -> OnADevice:
        """Another one."""
        return OnADevice(device, **self)


class Rows:
    """Of rows, which it gives out under names of another kind."""

    def __init__(self, **parts: Any) -> None:
        self.parts = parts

    def to(self, device: torch.device) -> Rows:
        """As a tensor's."""
        return Rows(**own_batches.moved(self.parts, device, non_blocking=False))

    def to_dict(self) -> dict[str, Any]:
        """With all that they are made of."""
        return {**self.parts, "length": 3}


ONE = torch.ones(2, 3)


@dataclasses.dataclass
class Later:
    """Of which a part may be missing yet."""

    x: torch.Tensor
    y: torch.Tensor = dataclasses.field(init=False)
    z: torch.Tensor = ONE


@pytest.mark.parametrize(
    ("batch", "names"),
    [
        (Pair(ONE, {"z": ONE}), ["0", "1.z"]), (MappingProxyType({"x": ONE}), ["x"]), (Record(x=ONE, y="text"), ["x"]),
        (OnADevice(torch.device("cpu"), x=ONE, y=ONE), ["x", "y"]),
        (Rows(x=ONE, y={"z": [ONE]}, s="text"), ["x", "y.z.0"]), (Later(ONE), ["x", "z"]),
        ([ONE, (ONE,)], ["0", "1.0"]), ({"x": ONE, "how": Later, "who": Rows}, ["x"]),
    ],
)  # fmt: skip
def test_every_tensor_of_a_batch_is_found_and_moved_and_the_users_own_stays(batch: Any, names: list[str]) -> None:
    assert [name for name, _ in own_batches.tensors(batch)] == names
    there = own_batches.moved(batch, torch.device("meta"), non_blocking=False)
    assert type(there) is (dict if isinstance(batch, MappingProxyType) else type(batch))
    found = {name: part.device.type for name, part in own_batches.tensors(there)}
    assert found == dict.fromkeys(names, "meta")
    assert {part.device.type for _, part in own_batches.tensors(batch)} == {"cpu"}
    assert Later.z.device.type == "cpu", "a class is no batch"


def test_the_same_values_have_the_same_hash_however_they_are_held() -> None:
    twice = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.tensor([1.0, 2.0]), (3,), check_invariants=True)
    assert own_batches.batch_hash(twice) == own_batches.batch_hash(twice.coalesce())
    assert own_batches.batch_hash(ONE.clone().requires_grad_()) == own_batches.batch_hash(ONE)


def test_batches_that_differ_in_anything_have_other_hashes() -> None:
    sparse, zeros = torch.eye(4)[:2].to_sparse(), torch.zeros(2, 4)
    parts = [torch.nested.nested_tensor([torch.zeros(2), last], layout=torch.jagged) for last in zeros]
    parts.append(torch.nested.nested_tensor([torch.zeros(2), torch.ones(4)], layout=torch.jagged))
    given: list[dict[str, torch.Tensor]] = [
        {"x": zeros}, {"y": zeros}, {"x": zeros.T}, {"x": zeros.int()}, {"x": zeros, "y": torch.zeros(0)},
        {"x": zeros + 1}, {"x": sparse}, {"x": 2 * sparse}, {"x": parts[0]}, {"x": parts[-1]},
        {"x": torch.eye(4)[[1, 0]].to_sparse()},
    ]  # fmt: skip
    assert len({own_batches.batch_hash(each) for each in given}) == len(given)
    assert own_batches.batch_hash({"x": parts[0]}) == own_batches.batch_hash({"x": parts[1]})


def test_weights_that_differ_in_anything_have_other_hashes() -> None:
    """Random ones sum to little; those of one sum may be larger or smaller, and those of two be exchanged."""

    def hashed(**weights: list[float]) -> str:
        model = torch.nn.Module()
        for name, values in weights.items():
            model.register_parameter(name, torch.nn.Parameter(torch.tensor(values)))
        return own_batches.weights_hash(model)

    given: list[dict[str, list[float]]] = [
        {"a": [1.0, -1.0], "b": [3.0]}, {"a": [2.0, -2.0], "b": [3.0]}, {"a": [1.0, -1.0], "c": [3.0]},
        {"a": [1.0, -1.0, 0.0], "b": [3.0]}, {"a": [-1.0, -1.0], "b": [3.0]}, {"b": [1.0, -1.0], "a": [3.0]},
    ]  # fmt: skip
    assert len({hashed(**each) for each in given}) == len(given)
    assert hashed(**given[0]) == hashed(**given[0])


def test_a_sequence_that_is_packed_keeps_its_lengths_on_the_host() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    there = own_batches.moved(packed, torch.device("meta"), non_blocking=True)
    assert (there.data.device.type, there.batch_sizes.device.type) == ("meta", "cpu")


def test_a_batch_that_moves_itself_is_told_not_to_wait() -> None:
    class Batch:
        def to(self, device: torch.device, **how: bool) -> None:
            told.append(how)

    told: list[dict[str, bool]] = []
    for non_blocking in (False, True):
        own_batches.moved(Batch(), torch.device("cpu"), non_blocking=non_blocking)
    assert told == [{}, {"non_blocking": True}], "what takes no such word is not given it unasked"


def test_a_batch_is_pinned_where_all_of_it_is() -> None:
    """From what is pageable the host waits, and that is no fault of the setting."""

    class Pinned(torch.Tensor):
        def is_pinned(self, *_: Any) -> bool:
            return True

    pinned, pageable = torch.zeros(2).as_subclass(Pinned), torch.zeros(2)
    assert OwnStep.is_pinned({"x": pinned, "y": (pinned,)})
    assert not OwnStep.is_pinned({"x": pinned, "y": (pageable,)})


def test_a_batch_in_which_no_tensor_is_found_is_refused() -> None:
    result = trial("without_tensors")
    assert result.outcome is Outcome.CRASH
    assert (
        "no tensor was found in the first batch, a list; a batch is a tensor, or tensors in a mapping" in result.reason
    )


# -- the model ---------------------------------------------------------------------------------------------------------


def test_a_layer_without_a_shape_is_named_with_what_to_do() -> None:
    reason = "the shape of the parameter 0.weight is not known yet, as in an nn.LazyLinear; run one batch through"
    assert reason in trial("without_a_shape").reason


def test_sparse_gradients_are_measured_and_compared() -> None:
    result = trial("sparse_gradients", gradient_check=True)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.measured["figures"]["bad_gradients"] == 0
    assert result.measured["figures"]["zero_gradients"] == 0
    assert result.measured["gradient_check"]["error"] < 1e-5


def test_inputs_that_do_not_fit_to_weights_in_16_bits_are_not_blamed_on_the_loss_alone() -> None:
    result = trial("plain", precision="bf16")
    assert result.outcome is Outcome.CRASH
    assert "precision=bf16 has put the weights into bfloat16: cast floating inputs" in result.reason
    assert "at line" in result.reason


def test_pruning_without_a_block_says_so() -> None:
    result = trial("plain", pruning=0.5)
    assert result.outcome is Outcome.INERT
    assert "pruning=0.5 cannot be applied" in result.reason
    assert "no matrix was found in a list of blocks" in result.reason
