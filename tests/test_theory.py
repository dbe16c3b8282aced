"""The paper's theorems: constants against random data, bounds against runs of the real mechanism."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest

from dpcd import theory
from dpcd.losses import Huber, Logistic, SmoothedHinge, Squared
from dpcd.nonprivate import objective, optimum
from dpcd.penalties import L1, Box
from dpcd.privacy import Columns, Curator, PrivacyBudget, SeededNoise, noise_multiplier
from dpcd.privacy.coordinates import CoordinateUpdates

LOSSES = [Logistic(), Huber(0.7), SmoothedHinge(0.5), Squared()]


def dp_cd(X, y, loss, penalty, regularity, guarantee, budget, generator):
    """Algorithm 1, through the curator; noise as in Theorem 1, which exact accounting must admit."""
    p = X.shape[1]
    curator = Curator(Columns.copy_of(X, y), PrivacyBudget(*budget), SeededNoise(generator))
    z = noise_multiplier(*budget, guarantee.n_updates * guarantee.n_loops, accounting="closed-form")
    start = np.zeros(p)
    for _ in range(guarantee.n_loops):
        coordinates = generator.integers(p, size=guarantee.n_updates)
        clip, steps = regularity.lipschitz, 1.0 / regularity.smoothness
        updates = CoordinateUpdates(loss, penalty, coordinates, p, clip, steps, np.full(p, z), start)
        _, values = curator.release(updates)
        iterate, total = start.copy(), np.zeros(p)
        for j, value in zip(coordinates, values, strict=True):
            iterate[j] = value
            total += iterate
        start = total / guarantee.n_updates
    return start


def mean_excess(runs, X, y, loss, penalty, best, regularity, guarantee, budget):
    errors = []
    for seed in range(runs):
        w = dp_cd(X, y, loss, penalty, regularity, guarantee, budget, np.random.default_rng(seed))
        errors.append(objective(X, y, loss, penalty, w) - best)
    return np.mean(errors)


# --- Constants ---


def test_the_norms_are_dual_and_reduce_to_the_euclidean_one():
    generator = np.random.default_rng(0)
    M, u, v = generator.uniform(0.1, 9.0, 6), generator.normal(size=6), generator.normal(size=6)
    assert abs(u @ v) <= theory.m_norm(u, M) * theory.m_inverse_norm(v, M)
    # Equality for v = M u: neither norm could be smaller.
    assert u @ (M * u) == pytest.approx(theory.m_norm(u, M) * theory.m_inverse_norm(M * u, M))
    assert theory.m_norm(u, np.ones(6)) == pytest.approx(np.linalg.norm(u))
    assert theory.sensitivity_norm(M, M) == pytest.approx(2.0 * math.sqrt(M.sum()))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_constants_hold_on_random_data_and_are_approached(loss):
    generator = np.random.default_rng(1)
    bounds, box, target = np.array([0.3, 1.0, 4.0]), np.array([2.0, 1.0, 0.5]), 1.0
    X = generator.choice([-1.0, 1.0], size=(1000, 3)) * bounds
    y = generator.choice([-1.0, 1.0], size=1000) * target
    constants = theory.regularity(loss, bounds, target_bound=target, weight_bound=box)
    slopes, second = np.zeros(3), np.zeros((3, 3))
    for _ in range(60):
        w = generator.choice([-1.0, 1.0, 0.1], size=3) * box
        z = X @ w
        derivative = np.array([loss.derivative(a, b) for a, b in zip(y[:200], z[:200], strict=True)])
        gradients = derivative[:, None] * X[:200]
        slopes = np.maximum(slopes, np.abs(gradients).max(axis=0))
        assert np.all(np.linalg.norm(gradients, axis=1) <= constants.global_lipschitz * (1 + 1e-12))
        h = 1e-4
        bend = [(loss.derivative(a, b + h) - loss.derivative(a, b - h)) / (2 * h) for a, b in zip(y, z, strict=True)]
        second = np.maximum(second, X.T @ (np.array(bend)[:, None] * X) / len(X))
    assert np.all(slopes <= constants.lipschitz * (1 + 1e-12))
    assert np.all(slopes >= 0.9 * constants.lipschitz)
    assert np.all(np.diag(second) <= constants.smoothness * (1 + 1e-6))
    largest = loss.curvature * np.linalg.eigvalsh(X.T @ X / len(X))[-1]
    assert constants.smoothness.max() - 1e-12 <= largest <= constants.global_smoothness * (1 + 1e-12)


def test_second_moments_and_row_bounds_sharpen_the_constants():
    one_hot = np.eye(4)
    crude = theory.regularity(Logistic(), np.ones(4))
    sharp = theory.regularity(Logistic(), np.ones(4), row_bound=1.0, second_moments=(one_hot**2).mean(axis=0))
    assert np.all(sharp.smoothness == 0.25 * 0.25)
    assert np.all(crude.smoothness == 0.25)
    assert (sharp.global_lipschitz, crude.global_lipschitz) == (1.0, 2.0)
    assert sharp.global_smoothness == pytest.approx(0.25)
    with pytest.raises(ValueError, match="second_moments exceed"):
        theory.regularity(Logistic(), np.ones(2), second_moments=[1.0, 2.0])


def test_an_unbounded_derivative_needs_a_box():
    with pytest.raises(ValueError, match="weight_bound"):
        theory.regularity(Squared(), np.ones(2), target_bound=1.0)
    # |x·w − y| ≤ 2·3 + 1.
    assert np.all(theory.regularity(Squared(), np.ones(2), target_bound=1.0, weight_bound=3.0).lipschitz == 7.0)


def test_axis_smoothness_is_not_smoothness_in_every_direction():
    # Two equal columns: M_j = 1 along the axes, but 2 along the diagonal, where f(w⁰) − f* exceeds ½‖w⁰ − w*‖_M².
    hessian, M, w = np.ones((2, 2)), np.ones(2), np.ones(2)
    assert theory.relative_spectrum(hessian, M) == pytest.approx((0.0, 2.0))
    assert 0.5 * w @ hessian @ w > 0.5 * theory.m_norm(w, M) ** 2
    assert theory.initial_radius(1.0, 4.0) == 2.0


@pytest.mark.parametrize("bad", [[1.0, 0.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf], [[1.0]], []])
def test_constants_that_are_not_positive_are_refused(bad):
    with pytest.raises(ValueError, match="lipschitz must hold one positive, finite number for each coordinate"):
        theory.noise_scales(bad, 10, 1, 1.0, 1e-3)


def test_vectors_of_different_length_are_refused():
    with pytest.raises(ValueError, match="smoothness has 1 entries where the other constants have 2"):
        theory.convex_guarantee([1.0, 1.0], [1.0], 1.0, 10, 1.0, 1e-3)


# --- Theorem 1 ---


def test_noise_scales_are_sensitivity_times_noise_multiplier():
    L, n, releases, epsilon, delta = np.array([0.5, 3.0]), 700, 45, 0.8, 1e-6
    expected = np.sqrt(12 * L**2 * releases * math.log(1 / delta)) / (n * epsilon)
    scales = theory.noise_scales(L, n, releases, epsilon, delta)
    np.testing.assert_allclose(scales, expected, rtol=1e-9)
    z = noise_multiplier(epsilon, delta, releases, accounting="closed-form")
    np.testing.assert_allclose(scales, 2 * L / n * z, rtol=1e-12)
    assert np.all(theory.noise_scales(L, n, releases, epsilon, delta, accounting="exact") < scales)
    with pytest.raises(ValueError, match="closed form"):
        theory.noise_scales(L, n, releases, 1.5, delta)


def test_two_opposite_records_attain_the_sensitivity_that_the_lemma_halves():
    n, bound = 10, 2.0
    X, y = np.full((n, 1), bound), np.ones(n)
    L = theory.regularity(Huber(1.0), [bound]).lipschitz[0]
    neighbor = y.copy()
    neighbor[0] = -1.0
    # At w = 0 the slopes of the record are −1 and 1, and the derivative of the mean moves by 2L/n.
    means = [np.mean([Huber(1.0).derivative(target, 0.0) for target in labels] * X[:, 0]) for labels in (y, neighbor)]
    z = noise_multiplier(1.0, 1e-3, 5, accounting="closed-form")
    assert abs(means[0] - means[1]) == pytest.approx(theory.noise_scales([L], n, 5, 1.0, 1e-3)[0] / z)


# --- Theorem 2 ---


def test_the_bounds_follow_from_the_descent_lemma():
    # Sum the lemma's inequality with equality, a_{k+1} = (p−1)/p a_k + (d_k − d_{k+1})/2 + noise/p, for distances that
    # shrink: the average of a_1 … a_K is the most that the lemma lets through.
    generator = np.random.default_rng(2)
    for _ in range(50):
        p, K = int(generator.integers(1, 9)), int(generator.integers(1, 40))
        gap, distance, noise = generator.uniform(0.0, 5.0, 3)
        d = distance**2 * np.concatenate([[1.0], np.sort(generator.uniform(size=K))[::-1]])
        values = [gap]
        for k in range(K):
            values.append((p - 1) / p * values[-1] + (d[k] - d[k + 1]) / 2 + noise / p)
        bound = theory.convex_bound(K, distance, gap, np.full(p, math.sqrt(noise / p)), np.ones(p))
        assert np.mean(values[1:]) <= bound * (1 + 1e-12)


def test_the_strongly_convex_bound_is_the_convex_one_applied_again_and_again():
    p, K, T, gap, mu = 4, 60, 5, 3.0, 0.2
    M, scales = np.array([1.0, 2.0, 3.0, 4.0]), np.full(4, 0.1)
    expected = gap
    for _ in range(T):
        # Strong convexity: ‖w − w*‖_M² ≤ (2/μ)(F(w) − F(w*)).
        expected = theory.convex_bound(K, math.sqrt(2 * expected / mu), expected, scales, M)
    assert theory.strongly_convex_bound(K, T, gap, mu, scales, M) == pytest.approx(expected)
    with pytest.raises(ValueError, match="need not contract"):
        theory.strongly_convex_bound(p * 6, T, gap, mu, scales, M)


def test_convex_guarantee_has_the_constant_6_sqrt_2_and_9_after_rounding():
    generator = np.random.default_rng(3)
    n, epsilon, delta, p = 1000, 0.9, 1e-3, 3
    log = math.log(1 / delta)
    constants = []
    for K in [*np.linspace(1.001, 4.0, 300), 1e3 + 0.1, 1e6 + 0.1]:
        L, M = generator.uniform(0.5, 2.0, p), generator.uniform(0.5, 2.0, p)
        R = K * theory.m_inverse_norm(L, M) * math.sqrt(8 * log) / (math.sqrt(p) * n * epsilon)
        guarantee = theory.convex_guarantee(L, M, R, n, epsilon, delta)
        assert guarantee.n_updates in (math.floor(K), math.ceil(K))
        assert guarantee.n_loops == 1
        assert guarantee.privacy_error == pytest.approx(theory.m_inverse_norm(guarantee.scales, M) ** 2)
        # ‖w⁰ − w*‖_M = gap^½ = R is where the theorem's R_M loses nothing.
        general = theory.convex_bound(guarantee.n_updates, R, R**2, guarantee.scales, M)
        assert guarantee.bound == pytest.approx(general)
        constants.append(guarantee.bound * n * epsilon / (math.sqrt(p * log) * theory.m_inverse_norm(L, M) * R))
    best, worst = min(constants), max(constants)
    assert best == pytest.approx(6 * math.sqrt(2), rel=1e-6)
    assert 8.99 < worst <= 9.0 * (1 + 1e-9)


def test_strongly_convex_guarantee_has_48_and_not_24():
    L, M, mu, gap = np.array([1.0, 2.0]), np.array([1.0, 4.0]), 0.25, 3.0
    n, epsilon, delta = 50_000, 1.0, 1e-6
    guarantee = theory.strongly_convex_guarantee(L, M, gap, mu, n, epsilon, delta)
    K, T = guarantee.n_updates, guarantee.n_loops
    unit = 2 * (1 + 1 / mu) * theory.m_inverse_norm(L, M) ** 2 * math.log(1 / delta) / (n * epsilon) ** 2
    assert K == 20
    assert T == math.ceil(math.log2(gap / (48 * unit))) > 5
    assert guarantee.bound == pytest.approx(theory.strongly_convex_bound(K, T, gap, mu, guarantee.scales, M))
    assert guarantee.optimization_error == pytest.approx(gap / 2**T)
    assert guarantee.privacy_error == pytest.approx(48 * unit * T * (1 - 0.5**T))
    # The appendix's constant would promise less than T applications of the lemma do.
    assert guarantee.bound > gap / 2**T + 24 * unit * T
    # T is near the best: no other whole number halves the bound.
    scales = [theory.noise_scales(L, n, K * t, epsilon, delta) for t in range(1, 60)]
    others = [theory.strongly_convex_bound(K, t + 1, gap, mu, s, M) for t, s in enumerate(scales)]
    assert guarantee.bound <= 1.2 * min(others)


def test_exact_accounting_promises_more():
    arguments = (np.ones(3), np.ones(3), 1.0, 1000, 1.0, 1e-6)
    assert theory.convex_guarantee(*arguments, accounting="exact").bound < theory.convex_guarantee(*arguments).bound
    # And it has no limit on ε.
    theory.convex_guarantee(np.ones(3), np.ones(3), 1.0, 1000, 8.0, 1e-6, accounting="exact")


def test_without_noise_there_is_no_best_number_of_updates():
    with pytest.raises(ValueError, match="convex_bound"):
        theory.convex_guarantee(np.ones(3), np.ones(3), 1.0, 1000, math.inf, 1e-6)
    with pytest.raises(ValueError, match="strongly_convex_bound"):
        theory.strongly_convex_guarantee(np.ones(3), np.ones(3), 1.0, 1.0, 1000, math.inf, 1e-6)


@pytest.mark.parametrize(("loss", "penalty"), [(Logistic(), L1(0.005)), (Huber(1.0), Box(-0.6, 0.6))])
def test_dp_cd_keeps_the_convex_promise(loss, penalty):
    generator = np.random.default_rng(4)
    n, budget = 20_000, (1.0, 1e-6)
    bounds = np.array([1.0, 0.2, 3.0])
    X = generator.choice([-1.0, 1.0], size=(n, 3)) * bounds
    X[:, 1] = np.where(generator.uniform(size=n) < 0.8, np.sign(X[:, 0]) * 0.2, X[:, 1])
    signal = X @ np.array([1.5, 0.0, -0.3])
    if isinstance(loss, Logistic):
        y = np.where(generator.uniform(size=n) < 1 / (1 + np.exp(-signal)), 1.0, -1.0)
    else:
        y = signal + generator.normal(size=n)
    constants = theory.regularity(loss, bounds, second_moments=(X**2).mean(axis=0))
    w, _ = optimum(X, y, loss, penalty)
    best = objective(X, y, loss, penalty, w)
    gap = objective(X, y, loss, penalty, np.zeros(3)) - best
    radius = theory.initial_radius(theory.m_norm(w, constants.smoothness), gap)
    guarantee = theory.convex_guarantee(constants.lipschitz, constants.smoothness, radius, n, *budget)
    assert guarantee.bound < gap  # or the promise would be empty
    error = mean_excess(30, X, y, loss, penalty, best, constants, guarantee, budget)
    assert 0.0 < error <= guarantee.bound


def test_dp_cd_keeps_the_strongly_convex_promise():
    generator = np.random.default_rng(5)
    n, budget, loss, penalty = 20_000, (1.0, 1e-6), Squared(), Box(-1.0, 1.0)
    bounds = np.array([1.0, 0.3])
    X = generator.uniform(-1.0, 1.0, size=(n, 2)) * bounds
    y = np.clip(X @ np.array([0.8, -0.9]) + generator.uniform(-0.2, 0.2, n), -1.0, 1.0)
    moments = (X**2).mean(axis=0)
    constants = theory.regularity(loss, bounds, second_moments=moments, target_bound=1.0, weight_bound=1.0)
    w, _ = optimum(X, y, loss, penalty)
    best = objective(X, y, loss, penalty, w)
    gap = objective(X, y, loss, penalty, np.zeros(2)) - best
    mu, _ = theory.relative_spectrum(X.T @ X / n, constants.smoothness)
    guarantee = theory.strongly_convex_guarantee(constants.lipschitz, constants.smoothness, gap, mu, n, *budget)
    assert guarantee.n_loops > 1
    assert guarantee.bound < gap
    error = mean_excess(30, X, y, loss, penalty, best, constants, guarantee, budget)
    assert 0.0 < error <= guarantee.bound


def test_one_update_of_the_mechanism_obeys_the_descent_lemma():
    # The lemma's noise term is what an update adds on a quadratic: its expectation is measured, over all coordinates.
    generator = np.random.default_rng(6)
    n, p, z, runs = 400, 3, 30.0, 4000
    X = generator.choice([-1.0, 1.0], size=(n, p)) * np.array([1.0, 0.5, 2.0])
    y = np.clip(generator.normal(size=n), -1.0, 1.0)
    start, penalty = np.array([0.3, -0.5, 0.2]), Box(-1.0, 1.0)
    constants = theory.regularity(Squared(), [1.0, 0.5, 2.0], target_bound=1.0, weight_bound=1.0)
    M, scales = constants.smoothness, 2 * constants.lipschitz / n * z
    w, _ = optimum(X, y, Squared(), penalty)
    hessian, b = X.T @ X / n, X.T @ y / n
    excess = lambda v: 0.5 * (v - w) @ hessian @ (v - w) + (hessian @ w - b) @ (v - w)  # noqa: E731
    left = right = 0.0
    columns, noise_source, multipliers = Columns.copy_of(X, y), SeededNoise(generator), np.full(p, z)
    for j in range(p):
        one = CoordinateUpdates(Squared(), penalty, np.array([j]), p, constants.lipschitz, 1 / M, multipliers, start)
        for _ in range(runs):
            after = start.copy()
            after[j] = one.run(columns, noise_source)[1][0]
            left += (excess(after) - (p - 1) / p * excess(start)) / (p * runs)
            right += (theory.m_norm(start - w, M) ** 2 - theory.m_norm(after - w, M) ** 2) / (2 * p * runs)
    noise = theory.m_inverse_norm(scales, M) ** 2 / p
    assert left <= right + noise
    # Without the noise term it would not hold: the lemma is tight enough for this test to mean something.
    assert left > right


# --- Remark 1 ---


def test_remark_1_gains():
    p, R, beta = 20, 1.5, 1e-3
    convex = theory.inexact_convex(1.0, p, R, beta)
    assert convex.gain == pytest.approx(math.sqrt(p * beta / (2 * R**2)))
    for mu in (0.01, 0.5, 1.0):
        strongly = theory.inexact_strongly_convex(10.0, p, mu, 20.0, beta)
        assert strongly.gain == pytest.approx(2 * mu)
    # Between the floors only the better analysis promises anything.
    between = math.sqrt(convex.floor * convex.tappenden_floor)
    assert math.isfinite(theory.inexact_convex(between, p, R, beta).updates)
    assert theory.inexact_convex(between, p, R, beta).tappenden_updates == math.inf
    below = theory.inexact_strongly_convex(1.5 * p * beta, p, 0.01, 20.0, beta)
    assert below.updates == below.tappenden_updates == math.inf


def test_remark_1_counts_reach_the_precision_by_theorem_2():
    p, R, beta, xi, mu, gap = 7, 1.2, 1e-3, 0.05, 0.2, 3.0
    scales = np.full(p, math.sqrt(beta))  # ‖σ‖² = pβ with M = 1
    K = int(theory.inexact_convex(xi, p, R, beta).updates)
    assert theory.convex_bound(K, R, R**2, scales, np.ones(p)) <= xi
    assert theory.convex_bound(K - 1, R, R**2, scales, np.ones(p)) > xi
    loop = math.ceil(2 * p * (1 + 1 / mu))
    loops = theory.inexact_strongly_convex(xi, p, mu, gap, beta).updates / loop
    assert loops == int(loops)
    assert theory.strongly_convex_bound(loop, int(loops), gap, mu, scales, np.ones(p)) <= xi
    # With a natural logarithm for the binary one, as printed, it would not be reached.
    printed = math.ceil(math.log(gap / (xi - 2 * p * beta)))
    assert theory.strongly_convex_bound(loop, printed, gap, mu, scales, np.ones(p)) > xi
    assert theory.inexact_strongly_convex(10.0, p, mu, gap, beta).tappenden_updates == 0.0


# --- Table 1 ---


def test_balanced_problems_never_favor_dp_cd():
    p, budget = 16, (1000, 1.0, 1e-6)
    even = theory.compare_rates(theory.balanced_example(p), *budget)
    assert even.convex.ratio == pytest.approx(1.0)
    assert even.convex.favored == "neither"
    worst = theory.compare_rates(theory.balanced_example(p, exclusive=True), *budget)
    assert worst.convex.ratio == pytest.approx(math.sqrt(p))
    assert worst.strongly_convex is not None
    assert worst.strongly_convex.ratio == pytest.approx(p)
    assert worst.convex.favored == worst.strongly_convex.favored == "DP-SGD"


def test_it_is_exclusive_and_not_correlated_features_that_hurt_dp_cd():
    copies = np.repeat([[1.0], [-1.0], [0.5]], 4, axis=1)
    one_hot = np.eye(4)
    ratios = []
    for X in (copies, one_hot):
        rows = np.linalg.norm(X, axis=1).max()
        constants = theory.regularity(Logistic(), np.abs(X).max(axis=0), row_bound=rows)
        ratios.append(np.linalg.norm(constants.lipschitz) / constants.global_lipschitz)
    np.testing.assert_allclose(ratios, [1.0, 2.0])


def test_unbalanced_problems_favor_dp_cd_by_the_imbalance():
    for imbalance in (1e2, 1e4, 1e6):
        table = theory.compare_rates(theory.unbalanced_example(5, imbalance), 1000, 1.0, 1e-6)
        assert table.convex.favored == table.strongly_convex.favored == "DP-CD"
        assert table.convex.ratio * math.sqrt(imbalance) == pytest.approx(1.0, abs=3 / imbalance + 1e-3)
        assert table.strongly_convex.ratio * imbalance == pytest.approx(1.0, abs=5 / imbalance)
    assert theory.compare_rates(theory.unbalanced_example(5, 1.0), 10, 1.0, 0.1).convex.favored == "neither"


def test_table_1_is_the_formulas():
    constants = theory.ProblemConstants(np.array([1.0, 2.0]), np.array([4.0, 1.0]), 2.1, 0.7, 0.6, 0.5, 0.9)
    n, epsilon, delta = 300, 0.5, 1e-4
    table = theory.compare_rates(constants, n, epsilon, delta)
    log = math.log(1 / delta)
    assert table.convex.cd == pytest.approx(math.sqrt(2 * log) / (n * epsilon) * math.sqrt(0.25 + 4) * 0.7)
    assert table.convex.sgd == pytest.approx(math.sqrt(2 * log) / (n * epsilon) * 2.1 * 0.6)
    assert table.strongly_convex is not None
    assert table.strongly_convex.cd == pytest.approx(2 * log / (n * epsilon) ** 2 * 4.25 / 0.5)
    assert table.strongly_convex.sgd == pytest.approx(2 * log / (n * epsilon) ** 2 * 2.1**2 / 0.9)
    convex_only = theory.ProblemConstants(np.ones(2), np.ones(2), 1.0, 1.0, 1.0)
    assert theory.compare_rates(convex_only, n, epsilon, delta).strongly_convex is None


def test_rates_are_the_order_of_theorem_2():
    # The explicit bound over the table's rate is a constant for the convex case, whatever the problem.
    generator = np.random.default_rng(7)
    ratios = []
    for _ in range(20):
        L, M, R = generator.uniform(0.1, 9, 4), generator.uniform(0.1, 9, 4), generator.uniform(0.5, 2.0)
        constants = theory.ProblemConstants(L, M, float(np.linalg.norm(L)), R, R)
        rate = theory.compare_rates(constants, 10**8, 0.5, 1e-9).convex.cd
        ratios.append(theory.convex_guarantee(L, M, R, 10**8, 0.5, 1e-9).bound / rate)
    np.testing.assert_allclose(ratios, 6 * math.sqrt(2), rtol=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"global_lipschitz": 0.5}, "between max L_j"),
        ({"global_lipschitz": 3.0}, "between max L_j"),
        ({"global_lipschitz": math.nan}, "between max L_j"),
        ({"strong_convexity_m": 1.0}, "both constants"),
        ({"strong_convexity_m": 1.0, "strong_convexity_i": 0.5}, "between M_min and M_max"),
        ({"strong_convexity_m": 0.1, "strong_convexity_i": 2.0}, "between M_min and M_max"),
        ({"radius_m": 0.0}, "radius_m"),
    ],
)
def test_constants_that_contradict_each_other_are_refused(changes, message):
    fields = {"lipschitz": np.ones(2), "smoothness": np.array([1.0, 4.0]), "global_lipschitz": 1.2}
    with pytest.raises(ValueError, match=message):
        theory.ProblemConstants(**(fields | {"radius_m": 1.0, "radius_i": 1.0} | changes))


# --- Theorem 3 ---


def test_the_subset_ratio_is_the_least_over_all_subsets():
    L = np.random.default_rng(8).uniform(0.1, 2.0, 80)
    assert -(-80 // 75) == 2
    pairs = min(a + b for a, b in itertools.combinations(L**2, 2))
    assert theory.subset_ratio(L) == pytest.approx(pairs / np.sum(L**2))
    assert theory.subset_ratio(np.ones(150)) == pytest.approx(1 / 75)
    assert theory.subset_ratio(L) >= (L.min() / L.max()) ** 2 / 75
    # One coordinate that dominates breaks the condition.
    assert theory.subset_ratio([1e3] + [1e-3] * 149) < 1e-11


def test_augmentation_moves_marginals_as_the_proof_needs():
    bits = theory.fingerprinting_bits(9, 10, 0)
    assert set(np.unique(bits)) <= {0.0, 1.0}
    constant = np.sum(bits.min(axis=0) == bits.max(axis=0))
    assert constant >= 8
    L = np.linspace(0.5, 3.0, 10)
    data = theory.augmented(bits, L)
    assert data.shape == (27, 10)
    assert np.all(np.abs(data) == L)
    q = data.mean(axis=0)
    np.testing.assert_allclose(q, 2 * L / 3 * bits.mean(axis=0) + L / 3)
    np.testing.assert_allclose(1.5 * q / L - 0.5, bits.mean(axis=0), atol=1e-12)
    assert np.all(data.sum(axis=0) >= 9 * L - 1e-12)
    # A miss of 1/3 in the bits is one of 2L/9 here.
    np.testing.assert_allclose((2 * L / 3) / 3, 2 * L / 9)


@pytest.mark.parametrize("n", [30, 200, 201])
def test_closed_forms_of_the_instances(n):
    generator = np.random.default_rng(9)
    L, epsilon = generator.uniform(0.5, 2.0, 12), 0.5
    hard = theory.hard_records(12, n, epsilon)
    assert hard == 3 * min(n // 3, math.floor(math.sqrt(12) / epsilon))
    convex = theory.convex_instance(L, 2.0, n, epsilon, random_state=1)
    strongly = theory.strongly_convex_instance(L, 0.3, n, epsilon, random_state=1)
    for instance in (convex, strongly):
        data = (instance.features, instance.target, instance.loss, instance.penalty)
        assert objective(*data, instance.weights) == pytest.approx(instance.objective)
        assert np.all(np.abs(instance.features) == instance.lipschitz)
        limit = L / 0.6 if instance is strongly else np.full(12, 3.0)
        for _ in range(20):
            w = generator.uniform(-limit, limit)
            assert objective(*data, w) - instance.objective == pytest.approx(instance.excess(w))
    assert np.linalg.norm(convex.weights) <= 2.0 * (1 + 1e-12)
    # The paper's own form of the strongly convex objective.
    d = strongly.features / 0.3
    assert np.all(np.abs(d) <= L / 0.6 * (1 + 1e-12))
    np.testing.assert_allclose(strongly.weights, d.mean(axis=0))
    w = generator.uniform(-L / 0.6, L / 0.6)
    written_out = 0.15 * np.mean(np.sum((w - d) ** 2, axis=1))
    data = (strongly.features, strongly.target, strongly.loss, strongly.penalty)
    assert objective(*data, w) + strongly.constant == pytest.approx(written_out)
    assert strongly.excess(2 * L / 0.6) == objective(*data, 2 * L / 0.6) == math.inf


def test_a_missed_marginal_costs_what_the_lower_bounds_say():
    # An estimate that misses the marginals of exactly ⌈p/75⌉ columns, those of least L_j, by 2L_j/9, always.
    generator = np.random.default_rng(10)
    L, n, epsilon, beta, mu = np.sort(generator.uniform(0.5, 2.0, 80)), 500, 0.4, 1.3, 0.7
    hard = theory.hard_records(80, n, epsilon)
    missed = np.where(np.arange(80) < 2, 2 * L / 9, 0.0) * hard / n
    convex = theory.convex_instance(L, beta, n, epsilon, 0)
    w = convex.weights + missed / convex.penalty.alpha
    lower = theory.convex_lower_bound(L, beta, n, epsilon, 1e-6)
    assert convex.excess(w) / 3 == pytest.approx(lower)
    ratio = theory.subset_ratio(L)
    assert lower == pytest.approx(2 / 243 * ratio * hard / n * np.linalg.norm(L) * beta)
    strongly = theory.strongly_convex_instance(L, mu, n, epsilon, 0)
    w = strongly.weights - missed / (2 * mu)
    lower = theory.strongly_convex_lower_bound(L, mu, n, epsilon, 1e-6)
    assert strongly.excess(w) / 3 == pytest.approx(lower)
    assert lower == pytest.approx(ratio * (hard / n) ** 2 * np.sum(L**2) / (486 * mu))


class Case(NamedTuple):
    instance: theory.LowerBoundInstance
    lower: float


def cases(L, n, epsilon, delta, seed):
    convex = theory.convex_instance(L, 1.5, n, epsilon, seed)
    strongly = theory.strongly_convex_instance(L, 0.5, n, epsilon, seed)
    return [
        Case(convex, theory.convex_lower_bound(L, 1.5, n, epsilon, delta)),
        Case(strongly, theory.strongly_convex_lower_bound(L, 0.5, n, epsilon, delta)),
    ]


@pytest.mark.parametrize("n", [24, 60, 2000])
def test_dp_cd_lies_between_the_lower_and_the_upper_bound(n):
    L, budget = np.repeat([1.0, 1.5], 40), (1.0, 1e-5)
    for instance, lower in cases(L, n, *budget, seed=n):
        guarantee = theory.strongly_convex_guarantee(
            instance.lipschitz, instance.smoothness, instance.excess(np.zeros(80)), 1.0, n, *budget
        )
        data = (instance.features, instance.target, instance.loss, instance.penalty)
        error = mean_excess(20, *data, instance.objective, instance, guarantee, budget)
        assert 0.0 < lower <= error <= guarantee.bound


def test_exact_answers_undercut_the_lower_bounds_and_output_perturbation_does_not():
    # Coordinate descent without noise is not private; the Gaussian mechanism on the marginals is.
    L, n, budget = np.ones(75), 3000, (1.0, 1e-5)
    generator = np.random.default_rng(11)
    no_noise = theory.UtilityGuarantee(10 * 75, 30, np.zeros(75), 0.0, 0.0)
    for instance, lower in cases(L, n, *budget, seed=3):
        data = (instance.features, instance.target, instance.loss, instance.penalty)
        exact = dp_cd(*data, instance, no_noise, (math.inf, 1e-5), generator)
        assert instance.excess(exact) < 1e-3 * lower
        mean = instance.features.mean(axis=0)
        noise = noise_multiplier(*budget, 1) * 2 * np.linalg.norm(instance.lipschitz) / n
        errors = []
        for _ in range(50):
            w = (mean + noise * generator.normal(size=75)) / instance.penalty.alpha
            if isinstance(instance.penalty, theory.BoxedL2):
                w = np.clip(w, -instance.penalty.bounds, instance.penalty.bounds)
            errors.append(instance.excess(w))
        assert lower < np.mean(errors)


def test_lower_bounds_stay_below_upper_bounds_and_scale_as_the_theorem_says():
    for p, n, epsilon in itertools.product((10, 200), (20, 300, 5000), (0.1, 1.0)):
        L, delta = np.ones(p), 1e-9
        for instance, lower in cases(L, n, epsilon, delta, seed=0):
            gap = instance.excess(np.zeros(p))
            upper = theory.strongly_convex_guarantee(
                instance.lipschitz, instance.smoothness, gap, 1.0, n, epsilon, delta
            )
            assert lower < upper.bound
    L = np.ones(400)
    twice = [theory.convex_lower_bound(L, 1.0, n, 0.1, 1e-9) for n in (10**5, 2 * 10**5)]
    assert twice[0] / twice[1] == pytest.approx(2.0)
    twice = [theory.strongly_convex_lower_bound(L, 1.0, n, 0.1, 1e-9) for n in (10**5, 2 * 10**5)]
    assert twice[0] / twice[1] == pytest.approx(4.0)
    # For n below √p/ε privacy costs a constant part of everything, whatever n.
    few = [theory.convex_lower_bound(L, 1.0, n, 0.01, 1e-9) for n in (30, 3000)]
    assert few[0] == pytest.approx(few[1])


def test_theorem_3_checks_its_assumptions():
    with pytest.raises(ValueError, match="not below 1/n"):
        theory.convex_lower_bound(np.ones(3), 1.0, 100, 1.0, 0.01)
    with pytest.raises(ValueError, match="epsilon ≤ fingerprinting"):
        theory.convex_instance(np.ones(4), 1.0, 100, 2.5)
    assert theory.convex_lower_bound(np.ones(4), 1.0, 100, 2.5, 1e-6) == 0.0
    with pytest.raises(ValueError, match="imbalance"):
        theory.unbalanced_example(3, 0.5)
