"""Hand-made faults in the trusted core, each with the tests that must catch it. `test_mutations.py` tries them all."""

from typing import NamedTuple


class Mutation(NamedTuple):
    """Replace `old`, which occurs once in `file`, by `new`; one of `tests` must fail."""

    fault: str
    file: str
    old: str
    new: str
    tests: str


MUTATIONS = [
    Mutation(
        "noise for half the sensitivity of an update",
        "mechanisms.py",
        "draws = self._draw(noise, 2.0 * encoder.bound)",
        "draws = self._draw(noise, 1.0 * encoder.bound)",
        "test_mechanisms.py -k cost_equals",
    ),
    Mutation(
        "the same noise in every update",
        "mechanisms.py",
        "draws[where] = noise.gaussian(multiplier * sensitivity, len(where))",
        "draws[where] = noise.gaussian(multiplier * sensitivity, 1)",
        "test_mechanisms.py -k never_reuse",
    ),
    Mutation(
        "contributions are not clamped above",
        "kernels.py",
        "t = t if t < self.bound else self.bound\n",
        "pass\n",
        "test_kernels.py -k every_contribution",
    ),
    Mutation(
        "contributions are not clamped below",
        "kernels.py",
        "t = t if t > -self.bound else -self.bound\n",
        "pass\n",
        "test_kernels.py -k every_contribution",
    ),
    Mutation(
        "NaN slips through the clamp",
        "kernels.py",
        "t = t if t < self.bound else self.bound\n",
        "t = self.bound if t >= self.bound else t\n",
        "test_kernels.py -k every_contribution",
    ),
    Mutation(
        "the last record is not summed",
        "kernels.py",
        "    for i in range(predictor.shape[0]):\n        z = predictor[i] + change",
        "    for i in range(predictor.shape[0] - 1):\n        z = predictor[i] + change",
        "test_kernels.py -k first_update",
    ),
    Mutation(
        "clipping is skipped although there is noise",
        "mechanisms.py",
        "if largest > 0.0 or np.isfinite",
        "if np.isfinite",
        "test_mechanisms.py -k between_the_charge",
    ),
    Mutation(
        "moments: noise for one of d sums",
        "mechanisms.py",
        "        scale = self.noise_multiplier * math.sqrt(self.size)\n        encoder",
        "        scale = self.noise_multiplier\n        encoder",
        "test_mechanisms.py -k cost_equals",
    ),
    Mutation(
        "histograms: a replaced record moves one count, not two",
        "mechanisms.py",
        "return self.noise_multiplier * math.sqrt(2.0 * self.size)",
        "return self.noise_multiplier * math.sqrt(1.0 * self.size)",
        "test_mechanisms.py",
    ),
    Mutation(
        "Laplace: one of d releases is charged",
        "mechanisms.py",
        "return self.size * PrivacyCost.pure_dp(self.epsilon / self.size)",
        "return PrivacyCost.pure_dp(self.epsilon / self.size)",
        "test_mechanisms.py -k cost_equals",
    ),
    Mutation(
        "sums may overflow",
        "mechanisms.py",
        "2.0**60 / n_records",
        "2.0**70 / n_records",
        "test_mechanisms.py -k overflows",
    ),
    Mutation(
        "a Gaussian release costs 1/z, not 1/z²",
        "accounting.py",
        "return cls(float(noise_multiplier) ** -2,",
        "return cls(float(noise_multiplier) ** -1,",
        "test_accounting.py",
    ),
    Mutation(
        "δ(ε) without e^ε",
        "accounting.py",
        "lower = epsilon + float(log_ndtr(",
        "lower = float(log_ndtr(",
        "test_accounting.py",
    ),
    Mutation(
        "μ rounded up",
        "accounting.py",
        "- target, low, 2.0 * low)[0]",
        "- target, low, 2.0 * low)[1] * (1.0 + 1e-6)",
        "test_accounting.py",
    ),
    Mutation(
        "only the larger of two costs counts",
        "accounting.py",
        "self.mu_squared + other.mu_squared,",
        "max(self.mu_squared, other.mu_squared),",
        "test_accounting.py",
    ),
    Mutation(
        "only the larger of two Rényi curves counts",
        "accounting.py",
        "renyi = tuple(a + b for a, b in",
        "renyi = tuple(max(a, b) for a, b in",
        "test_accounting.py",
    ),
    Mutation(
        "many releases for the price of one",
        "accounting.py",
        "            count * self.mu_squared,\n",
        "            self.mu_squared,\n",
        "test_accounting.py",
    ),
    Mutation(
        "discrete noise is not charged",
        "accounting.py",
        "return gaussian_epsilon(self.mu, math.exp(log_delta)) + 2.0 * self.discretization",
        "return gaussian_epsilon(self.mu, math.exp(log_delta))",
        "test_accounting.py",
    ),
    Mutation(
        "pure privacy for half its μ",
        "accounting.py",
        "mu = -2.0 * float(ndtri_exp(",
        "mu = -1.0 * float(ndtri_exp(",
        "test_accounting.py",
    ),
    Mutation(
        "swapped conversion: Rényi divergences converted without log(1/δ)",
        "accounting.py",
        "- (log_delta + np.log(ORDERS)) / (ORDERS - 1.0)",
        "- np.log(ORDERS) / (ORDERS - 1.0)",
        "test_accounting.py",
    ),
    Mutation(
        "the budget takes the best order after the fact",
        "accounting.py",
        "return cost.epsilon(self.delta, self.order) <= self.epsilon",
        "return cost.epsilon(self.delta) <= self.epsilon",
        "test_accounting.py",
    ),
    Mutation(
        "nothing is charged",
        "curator.py",
        "            self._charge(mechanism)\n",
        "            pass\n",
        "test_curator.py",
    ),
    Mutation(
        "the books forget what was spent before",
        "curator.py",
        "self._spent = after",
        "self._spent = cost",
        "test_curator.py",
    ),
    Mutation(
        "the budget is not enforced",
        "curator.py",
        "if not self.budget.admits(after):",
        "if False:",
        "test_curator.py",
    ),
    Mutation(
        "data are read before they are paid for",
        "curator.py",
        "        with self._lock:\n",
        "        mechanism.run(self._columns, self._noise)\n        with self._lock:\n",
        "test_curator.py",
    ),
    Mutation(
        "secure noise of half the scale",
        "noise.py",
        "(*space, scale=scale)",
        "(*space, scale=scale / 2)",
        "test_noise.py",
    ),
    Mutation(
        "a seed where none was asked for",
        "noise.py",
        "return SecureNoise(), np.random.default_rng()",
        "return SeededNoise(np.random.default_rng(0)), np.random.default_rng()",
        "test_noise.py",
    ),
    Mutation(
        "sampled Gaussian: the rate is forgotten",
        "sampling.py",
        "(order - k) * math.log1p(-rate) + k * math.log(rate)",
        "(order - k) * math.log1p(-rate) + (k + 1) * math.log(rate)",
        "test_sampling.py",
    ),
    Mutation(
        "replacing a record of a batch counts as adding one",
        "sampling.py",
        "    relation = REPLACE_ONE\n    sensitivity = 2.0\n",
        "    relation = REPLACE_ONE\n    sensitivity = 1.0\n",
        "test_stochastic.py -k sensitivity",
    ),
    Mutation(
        "gradients are clipped entry by entry only",
        "kernels.py",
        "factors[c] = shortened if length > clips[c] else whole",
        "factors[c] = slope * (bound / clips[c])",
        "test_stochastic.py -k sensitivity",
    ),
    Mutation(
        "dual steps: noise for v alone",
        "stochastic.py",
        "self.noise_multiplier * self.sampling.sensitivity * math.sqrt(2.0)",
        "self.noise_multiplier * self.sampling.sensitivity",
        "test_stochastic.py -k primal_vector",
    ),
    Mutation(
        "costs for other data than were read",
        "stochastic.py",
        "    if data.features.shape != (n_records, n_columns):\n",
        "    if False:\n",
        "test_stochastic.py -k paid_for",
    ),
    Mutation(
        "the ledger does not refuse",
        "ledger.py",
        "standing.check(cost, description)",
        "pass",
        "test_ledger.py",
    ),
]
