"""What is known of a file with a training step before it is run."""

from __future__ import annotations

import pytest

from harness.experiment.step_source import function_problem, returns_a_tuple

TUPLE = "def build(device, settings):\n    return model, batches, loss\n"
TWO_RETURNS = """\
def build(device, settings):
    def loss(model, batch):
        return model
    if settings:
        return 1, 2, 3
    return 1, 2, loss
"""


@pytest.mark.parametrize(
    "source",
    [
        TUPLE,
        "class build:\n    pass\n",
        "build = make_build(3)\n",
        "build: object = lambda device, settings: None\n",
        "async def build(device, settings): ...\n",
        "from elsewhere import build\n",
        "from elsewhere import make as build\n",
        "import build.steps\n",
        "import elsewhere as build\n",
        "match make():\n    case build:\n        pass\n",
        "if True:\n    def build(device, settings): ...\n",
        "try:\n    import nothing\nexcept ImportError:\n    build = None\n",
        "(first, [*build]) = 1, [2]\n",
        "def make():\n    global build\n    build = 3\n",
        # what only a run shows is left to the run
        "from elsewhere import *\n",
        "globals()['build'] = 3\n",
        "locals()['build'] = make()\n",
        "vars().update(build=make())\n",
        "exec(TEXT)\n",
        "made = eval('(build := make())')\n",
        "import sys\nsetattr(sys, 'build', 3)\n",
        "import sys\nsys.modules[__name__].build = make()\n",
        "build = None\nglobals()['build'] = make()\n",
        "build = None\nfrom elsewhere import *\n",
        "build = None\nif ready:\n    build = make()\n",
        "build, *others = 1, 2, 3\n",
        "others.build, build = 1, make()\n",
        "build, other = make(), 2\n",
        "def __getattr__(name): ...\n",
        # a warning of the compiler is none of ours
        "pattern = '\\d'\n" + TUPLE,
        "# -*- coding: latin-1 -*-\nname = '\xe9'\n" + TUPLE,
        "x = " + "+".join(["1"] * 900) + "\n" + TUPLE,
    ],
)
def test_a_function_that_may_be_there_is_no_problem(source: str, recwarn: pytest.WarningsRecorder) -> None:
    assert function_problem(source.encode("latin-1"), "build") is None
    assert not recwarn.list


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (TUPLE, "it has no function 'bild'; did you mean 'build'?"),
        ("def inner():\n    bild = 3\n", "it has no function 'bild'; known: inner"),
        ("async def inner():\n    bild = 3\n", "it has no function 'bild'"),
        ("class Inner:\n    bild = 3\n", "it has no function 'bild'; known: Inner"),
        ("inner = lambda: (bild := 3)\n", "it has no function 'bild'"),
        ("import bild as built\n", "it has no function 'bild'"),
        ("other.globals()\nprint(bild)\nmodel.modules()\n", "it has no function 'bild'"),
        ("x = bild\n", "it has no function 'bild'"),
        ("", "it has no function 'bild'"),
        ("def bild(:\n", "cannot be read as Python (line 1: "),
        ("bild = 1\x00\n", "cannot be read as Python"),
        ("# coding: none\n", "cannot be read as Python (unknown encoding: none); mend the file"),
        ("bild" + ".a" * 100_000, "cannot be read as Python"),
    ],
)
def test_a_function_that_is_not_there(source: str, words: str) -> None:
    problem = function_problem(source.encode(), "bild")
    assert problem is not None
    assert words in problem


@pytest.mark.parametrize(
    "value",
    ["3", "'text'", "f'{text}'", "[make]", "make,", "{1: make}", "{make}", "[x for x in y]", "{x: x for x in y}",
     "{x for x in y}"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["build", "build: object", "other, build, third", "other = build"])
def test_what_is_written_out_as_a_value_is_no_function(name: str, value: str) -> None:
    source = f"{name} = {value}" if "," not in name else f"{name} = make(), ({value}), 3"
    problem = function_problem(source.encode(), "build")
    assert problem == "'build' in it is a value; name the function that returns model, batches and loss"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (TUPLE, True),
        (TWO_RETURNS, True),
        ("def build(d, s):\n    return TrainingStep(model=1)\n", False),
        ("def build(d, s):\n    if s:\n        return step\n    return 1, 2, 3\n", False),
        ("def build(d, s):\n    return (1, 2, 3) if s else step\n", False),
        ("@wrapped\n" + TUPLE, False),
        (TUPLE + "build = wrapped(build)\n", False),
        (TUPLE + "globals()['build'] = wrapped(build)\n", False),
        (TUPLE + "from elsewhere import *\n", False),
        (TUPLE + "def other():\n    return step\n", True),
        ("from elsewhere import build\n", False),
        ("def build(d, s):\n    raise ValueError\n", False),
        ("if True:\n    def build(d, s):\n        return 1, 2, 3\n", False),
    ],
)  # fmt: skip
def test_a_step_that_can_only_be_a_tuple(source: str, expected: bool) -> None:
    assert returns_a_tuple(source.encode(), "build") is expected
