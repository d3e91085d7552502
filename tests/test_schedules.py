import keras
import numpy as np
import pytest

from tfk_transformer.schedules import InverseSquareRoot

STEPS = np.array([1, 2, 13, 1999, 3999, 4000, 4001, 16_000, 100_000])  # as the paper counts, from 1


def rates(schedule, steps):
    return [float(schedule(int(step) - 1)) for step in steps]  # as Keras counts, from 0


@pytest.mark.parametrize(("model_dim", "warmup_steps"), [(512, 4000), (1024, 16_000), (37, 11)])
def test_paper_equals_equation_3(model_dim, warmup_steps):
    expected = [model_dim**-0.5 * min(s**-0.5, s * warmup_steps**-1.5) for s in STEPS.tolist()]
    np.testing.assert_allclose(
        rates(InverseSquareRoot.paper(model_dim, warmup_steps), STEPS), expected, rtol=1e-5
    )


def test_paper_rates_by_hand():
    # 1 / sqrt(512 * 4000) = 6.9877e-4 at the peak, half of it at a half and at four times the
    # peak's step.
    np.testing.assert_allclose(
        rates(InverseSquareRoot.paper(512), [1, 2000, 4000, 16_000, 400_000]),
        [1.746928e-7, 3.493856e-4, 6.987712e-4, 3.493856e-4, 6.987712e-5],
        rtol=1e-5,
    )


def test_rate_rises_to_peak_and_falls():
    steps = np.arange(1, 50)
    actual = np.array(rates(InverseSquareRoot(peak=0.7, warmup_steps=7), steps))
    np.testing.assert_allclose(actual[:7], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], rtol=1e-6)
    np.testing.assert_allclose(actual[7:], 0.7 * np.sqrt(7 / steps[7:]), rtol=1e-6)
    assert steps[actual.argmax()] == 7


def test_one_warmup_step_starts_at_peak():
    np.testing.assert_allclose(
        rates(InverseSquareRoot(peak=0.3, warmup_steps=1), [1, 4, 9]), [0.3, 0.15, 0.1], rtol=1e-6
    )


def test_optimizer_reads_schedule():
    optimizer = keras.optimizers.SGD(InverseSquareRoot(peak=0.7, warmup_steps=7))
    weight = keras.Variable(1.0)
    optimizer.build([weight])
    for _ in range(3):
        optimizer.apply([keras.ops.ones(())], [weight])
    assert float(weight.value) == pytest.approx(1 - 0.1 - 0.2 - 0.3)
    assert float(optimizer.learning_rate) == pytest.approx(0.4)


@pytest.mark.parametrize("peak", [0.0, -1e-3, "0.001", None])
def test_nonpositive_peak_is_refused(peak):
    message = f"^peak: expected a positive learning rate, got {peak!r}.$"
    with pytest.raises(ValueError, match=message):
        InverseSquareRoot(peak)


@pytest.mark.parametrize("warmup_steps", [0, "300"])
def test_warmup_below_one_is_refused(warmup_steps):
    message = f"^warmup_steps: expected at least 1, got {warmup_steps!r}.$"
    with pytest.raises(ValueError, match=message):
        InverseSquareRoot(1e-3, warmup_steps)


def test_schedule_config_round_trip():
    schedules = keras.optimizers.schedules
    made = schedules.deserialize(schedules.serialize(InverseSquareRoot(peak=0.7, warmup_steps=7)))
    assert type(made) is InverseSquareRoot
    assert (made.peak, made.warmup_steps) == (0.7, 7)
