import numpy as np
import pytest
from scipy import stats

from dpcd.privacy import SecureNoise, SeededNoise, randomness

# Each goodness-of-fit test below raises a false alarm once in 10⁵ runs.
FALSE_ALARM = 1e-5
# There are many of these, and each raises one less often than once in 10⁶ runs.
SMALL_FALSE_ALARM = 1e-6


def discrete_pmf(exponent, reach):
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-exponent(k))
    return k, weights / weights.sum()


LAWS = {"gaussian": lambda k, scale: k**2 / (2.0 * scale**2), "laplace": lambda k, scale: np.abs(k) / scale}


def p_values(draws, law, scale):
    """How well draws agree with the discrete law at every common value, in its tails, and in its symmetry."""
    k, pmf = discrete_pmf(lambda k: LAWS[law](k, scale), 400)
    # Values beyond the last one that is common enough for the chi-squared law count as that one.
    last = max(value for value in range(400) if pmf[k >= value].sum() * len(draws) > 50)
    expected = np.bincount(np.clip(k, -last, last) + last, pmf * len(draws))
    observed = np.bincount(np.clip(draws, -last, last) + last, minlength=len(expected))
    found = [stats.chisquare(observed, expected).pvalue]
    for share in (0.1, 0.01, 0.001):
        tail = next(value for value in range(1, 400) if pmf[abs(k) >= value].sum() <= share)
        chance = pmf[abs(k) >= tail].sum()
        found.append(stats.binomtest(np.count_nonzero(abs(draws) >= tail), len(draws), chance).pvalue)
    for least in (1, 2):
        far = draws[abs(draws) >= least]
        found.append(stats.binomtest(np.count_nonzero(far > 0), len(far)).pvalue if len(far) else 1.0)
    return found


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [0.3, 0.5, 1.0, 2.5, 7.0])
def test_secure_noise_follows_the_discrete_law_exactly(law, scale):
    assert min(p_values(getattr(SecureNoise(), law)(scale, 40_000), law, scale)) > SMALL_FALSE_ALARM


@pytest.mark.parametrize("law", LAWS)
def test_that_finds_what_is_nearly_right(law, rng):
    """Rounded noise, a scale that is 10 % too small, a tail that is cut off, one sign too often."""
    right = getattr(SecureNoise(), law)(2.5, 40_000)
    shrunk = getattr(SecureNoise(), law)(0.9 * 2.5, 40_000)
    cut = np.where(abs(right) > 7, 0, right)
    one_sided = np.where(rng.random(len(right)) < 0.1, abs(right), right)
    for draws, place in ((shrunk, 0), (cut, 3), (one_sided, 4)):
        assert p_values(draws, law, 2.5)[place] < SMALL_FALSE_ALARM
    assert p_values(getattr(SeededNoise(rng), law)(0.5, 40_000), law, 0.5)[0] < SMALL_FALSE_ALARM


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(np.random.default_rng(1))], ids=["secure", "seeded"])
@pytest.mark.parametrize("scale", [2.0**30, 1.37 * 2.0**50])
def test_large_scales_are_gaussian_and_laplace(source, scale):
    assert stats.kstest(source.gaussian(scale, 4000) / scale, "norm").pvalue > FALSE_ALARM
    assert stats.kstest(source.laplace(scale, 4000) / scale, "laplace").pvalue > FALSE_ALARM


def test_secure_noise_has_the_right_size_and_all_its_bits():
    scale = 2.0**40
    draws = SecureNoise().gaussian(scale, 20_000)
    # Σ (k/σ)² is chi-squared: noise 3 % too small would show.
    statistic = np.sum((draws / scale) ** 2)
    assert stats.chi2.sf(statistic, len(draws)) > FALSE_ALARM
    assert stats.chi2.cdf(statistic, len(draws)) > FALSE_ALARM
    low_bits = np.bincount(draws % 1024, minlength=1024)
    assert stats.chisquare(low_bits).pvalue > FALSE_ALARM


def test_secure_noise_is_opendps(monkeypatch):
    from opendp import measurements

    called = []
    make = measurements.make_gaussian
    monkeypatch.setattr(measurements, "make_gaussian", lambda *a, **k: called.append(k["scale"]) or make(*a, **k))
    SecureNoise().gaussian(2.0**33, 3)
    assert called == [2.0**33]


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(np.random.default_rng(1))], ids=["secure", "seeded"])
def test_draws_are_fresh(source):
    first, second = source.gaussian(2.0**40, 500), source.gaussian(2.0**40, 500)
    assert first.dtype == np.int64
    # At this scale a repeated value has probability 10⁻⁷.
    assert len(np.unique(np.concatenate([first, second]))) == 1000
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.25


def test_no_noise_for_scale_zero_and_no_scale_that_is_not_a_number():
    for source in (SecureNoise(), SeededNoise(np.random.default_rng(1))):
        assert np.array_equal(source.gaussian(0.0, 3), [0, 0, 0])
        assert np.array_equal(source.laplace(0.0, 3), [0, 0, 0])
        for scale in (np.nan, np.inf, -1.0):
            with pytest.raises(ValueError, match="scale of noise"):
                source.gaussian(scale, 3)


def test_randomness_is_private_without_a_seed_and_reproducible_with_one():
    assert randomness(None)[0].private
    for make in (lambda: 7, lambda: np.random.RandomState(7), lambda: np.random.default_rng(7), lambda: np.int64(7)):
        (a, a_choices), (b, b_choices) = randomness(make()), randomness(make())
        assert not a.private
        assert a.description == "seeded: not private"
        draws = a.gaussian(1e12, 5)
        assert np.array_equal(draws, b.gaussian(1e12, 5))
        # Public choices come from another stream than the noise.
        choices = a_choices.normal(0, 1e12, 5)
        assert np.array_equal(choices, b_choices.normal(0, 1e12, 5))
        assert not np.any(np.rint(choices) == draws)
    for bad in ("seed", -1, 0.5):
        with pytest.raises(ValueError, match="random_state must be"):
            randomness(bad)
