"""What many devices would give, from the few that were there (arXiv 1910.02054: 4 + 12/N and 2 + 14/N of 16)."""

from __future__ import annotations

import math

import pytest

from harness.judgement.zero import OneDeviceCountError, StatePoint, fit, sentence


def points(form: tuple[float, float], devices: tuple[int, ...] = (1, 2, 4)) -> list[StatePoint]:
    return [StatePoint(devices=count, bytes_per_parameter=form[0] + form[1] / count) for count in devices]


def test_stage_one_as_published_is_recognised_and_its_limit_is_four() -> None:
    found = fit(points((4, 12)))
    assert found.form == "4 + 12/N"
    assert found.error == pytest.approx(0)
    assert found.limit == 4
    # 4 + 12/8 = 5.5 of 16; 4 + 12/64 = 4.1875; 4 + 12/1024 = 4.01171875
    assert found.predictions == pytest.approx({8: 5.5, 64: 4.1875, 1024: 4.01171875})
    assert found.ratio(8) == pytest.approx(16 / 5.5)


def test_stage_one_that_shards_gradients_too_fits_the_other_form() -> None:
    found = fit(points((2, 14)))
    assert found.form == "2 + 14/N"
    said = sentence(found, 4)
    assert "2 + 14/N fits best" in said
    assert "its limit for many devices is 8x, not the claimed 4x" in said


def test_the_sentence_has_the_measured_bytes_the_errors_and_the_predictions() -> None:
    said = sentence(fit(points((4.1, 12.1))), 4)
    assert "16.20 at 1, 10.15 at 2, 7.12 at 4 device(s)" in said
    assert "4 + 12/N fits best (error 1.5%; " in said
    assert "2.91x at 8, 3.82x at 64, 3.99x at 1024 devices" in said
    assert "the claimed 4x is its limit for many devices" in said


def test_the_fit_error_is_the_relative_root_mean_square() -> None:
    # measured 8 and 5 against 4 + 12/N: 10/8 - 1 = 0.25 and 7/5 - 1 = 0.4; √((0.0625 + 0.16)/2) = 0.33354
    found = fit([StatePoint(devices=2, bytes_per_parameter=8.0), StatePoint(devices=4, bytes_per_parameter=5.0)])
    assert found.errors["4 + 12/N"] == pytest.approx(0.33354, abs=1e-5)


def test_a_free_fit_finds_a_form_that_nobody_published() -> None:
    found = fit(points((8, 8), (1, 2, 4, 8)))
    assert found.free == pytest.approx((8, 8))
    assert found.free_error == pytest.approx(0, abs=1e-12)
    assert found.free_limit == pytest.approx(2)
    measured = fit(points((8, 8), (1, 2, 4, 8)), 20.0)
    assert measured.free_limit == pytest.approx(2.5), "of the state that the baseline was seen to have"
    assert measured.ratio(8) == pytest.approx(found.ratio(8)), "a published form is one of 16 bytes"


def test_two_device_counts_are_enough_but_leave_no_error_of_the_free_fit() -> None:
    assert fit(points((4, 12), (1, 2))).free_error is None


def test_stage_three_has_no_limit() -> None:
    found = fit(points((0, 16)))
    assert found.form == "16/N"
    assert math.isinf(found.limit)


def test_no_sharding_is_recognised() -> None:
    assert fit(points((16, 0))).form == "16"


@pytest.mark.parametrize("devices", [1, 2])
def test_one_device_count_is_not_enough(devices: int) -> None:
    with pytest.raises(OneDeviceCountError, match=rf"measured at {devices} device\(s\) only"):
        fit([StatePoint(devices=devices, bytes_per_parameter=10.0)] * 2)
