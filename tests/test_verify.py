import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dpcd import DPLogisticRegression, DPRidge, cli
from dpcd.privacy import PrivacyBudget
from dpcd.privacy.rivals.sampling import FixedSize, planned_order, sampled_noise_multiplier
from dpcd.solvers import DPCD, DPGCD, DPSGD, DPSVRG, LaplaceSmoothness, Screened
from dpcd.verify import StatementError, verify


def statement(rng, **settings):
    X = rng.normal(size=(2000, 3))
    settings = {"feature_bounds": (-4, 4), "target_bounds": (-5, 5), "random_state": 0} | settings
    model = DPRidge(**settings).fit(X, X[:, 0] + rng.normal(size=2000))
    # As if the noise had been secure: what is checked here is arithmetic.
    return json.loads(model.privacy_.to_json()) | {"private": True}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"epsilon": 0.1},
        {"epsilon": 8.0, "delta": 1e-9},
        {"smoothness": LaplaceSmoothness()},
        {"solver": DPCD(n_passes=3, clip=[0.5, 1.0, 2.0, 4.0])},
        {"solver": DPSGD(n_passes=2, batch_size=20)},
        {"solver": DPSGD(n_passes=2, batch_size=2000)},
        {"solver": DPSVRG(n_loops=2)},
        {"solver": DPGCD(n_updates=5)},
        {"solver": Screened(n_kept=1)},
        {"solver": DPSGD(n_passes=2, clip=1.0, sampling="poisson"), "smoothness": np.ones(3)},
    ],
    ids=[
        *("default", "small", "large", "laplace", "allocation", "batches", "whole", "batches beside Gaussians"),
        *("greedy", "screened", "Poisson batches"),
    ],
)
def test_true_statements_are_verified(rng, settings):
    fields = statement(rng, **settings)
    result = verify(json.dumps(fields))
    assert result.verified, str(result)
    assert 0.9 * result.stated_epsilon <= result.recomputed_epsilon <= 1.01 * result.stated_epsilon
    assert "verified" in str(result)


def on_batches(size=100, n_records=10_000, count=500, epsilon=0.5, **changes):
    """A statement about nothing but releases on batches, with the noise that the budget asks for."""
    sampling, delta = FixedSize(size, n_records), 1e-8
    budget = PrivacyBudget(epsilon, delta, planned_order(sampling, epsilon, delta, count, 5))
    multiplier = sampled_noise_multiplier(sampling, budget, count, 5)
    release = {"count": count, "law": "gaussian", "relation": "replace one record", "mu_squared": 0.0}
    release |= {"smallest_noise_multiplier": multiplier, "largest_noise_multiplier": multiplier}
    release |= {"sampling": {"kind": "FixedSize", "size": size, "n_records": n_records}} | changes
    return {"epsilon": epsilon, "delta": delta, "spent_epsilon": epsilon, "private": True, "releases": [release]}


@pytest.mark.parametrize(("size", "count"), [(1, 10**6), (10, 500), (100, 500), (2000, 40), (9999, 1)])
@pytest.mark.parametrize("epsilon", [0.1, 3.0, 20.0])
def test_the_cost_of_batches_is_computed_by_another_integral(size, count, epsilon):
    fields = on_batches(size, count=count, epsilon=epsilon)
    honest = verify(json.dumps(fields))
    assert honest.verified, str(honest)
    # Our own curve is a chord between some whole orders, which tells most where the best order is small.
    assert honest.recomputed_epsilon > (0.9 if epsilon < 10.0 else 0.6) * epsilon
    fields["releases"][0]["sampling"]["n_records"] = 40_000
    assert verify(json.dumps(fields)).recomputed_epsilon < 0.97 * honest.recomputed_epsilon


@pytest.mark.parametrize("size", [1, 10, 100, 2000])
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_batches_that_were_larger_are_found_out(size, epsilon):
    fields = on_batches(size, epsilon=epsilon)
    fields["releases"][0]["sampling"]["size"] = 4 * size
    assert not verify(json.dumps(fields)).verified


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": {"kind": "FixedSize", "size": 0, "n_records": 10_000}}, "between 1 and all records"),
        ({"sampling": {"kind": "FixedSize", "size": 1.5, "n_records": 10_000}}, "between 1 and all records"),
        ({"sampling": {"kind": "FixedSize", "size": 10_001, "n_records": 10_000}}, "between 1 and all records"),
        ({"sampling": {"kind": "Poisson", "rate": 0.0}}, "rate"),
        ({"sampling": {"kind": "Poisson", "rate": 2.0}}, "rate"),
        ({"sampling": {"kind": "other"}}, "unknown kind"),
        ({"sampling": [1]}, "not an object"),
        ({"law": "laplace"}, "laplace releases on batches"),
        ({"relation": ["replace one record"]}, "not a text"),
        ({"count": "inf"}, "whole number"),
        ({"count": 10**400}, "beyond all numbers"),
        ({"smallest_noise_multiplier": "inf"}, "not finite"),
        ({"selection": {"mean": 10.0, "shape": 0.0}}, "candidates with batches"),
        ({"sampling": None, "law": "laplace", "count": 10**8, "smallest_noise_multiplier": 1e8}, "Laplace releases"),
    ],
)
def test_releases_that_cannot_be_are_refused(changes, message):
    fields = on_batches()
    fields["releases"][0] |= changes
    with pytest.raises(StatementError, match=message):
        verify(json.dumps(fields))


@pytest.mark.parametrize(
    "beside", [{"selection": {"mean": 10.0, "shape": 0.0}}, {"sampling": {"kind": "Poisson", "rate": 0.1}}]
)
def test_there_is_no_opinion_on_two_kinds_of_secrets(beside):
    fields = on_batches()
    fields["releases"].append({**fields["releases"][0], "sampling": None, **beside})
    with pytest.raises(StatementError, match="other secrets beside batches"):
        verify(json.dumps(fields))


def test_batches_of_another_relation_are_not_verified():
    for sampling, relation in (
        (
            {"kind": "FixedSize", "size": 100, "n_records": 10_000},
            "add or remove one record (their number taken as public)",
        ),
        ({"kind": "Poisson", "rate": 0.01}, "replace one record"),
    ):
        fields = on_batches(sampling=sampling, relation=relation)
        assert "another neighbouring relation" in str(verify(json.dumps(fields)))


def test_what_is_beside_batches_counts():
    fields = on_batches(epsilon=1.0)
    alone = verify(json.dumps(fields)).recomputed_epsilon
    plain = {**fields["releases"][0], "sampling": None, "count": 1}
    for law, multiplier, least in (
        ("gaussian", 8.0, 1.1),
        ("laplace", 8.0, 1.02),
        ("gumbel", 8.0, 1.01),
        ("gumbel", 1e20, 0.99),
    ):
        line = {**plain, "law": law, "smallest_noise_multiplier": multiplier, "largest_noise_multiplier": multiplier}
        both = verify(json.dumps({**fields, "releases": [*fields["releases"], line]})).recomputed_epsilon
        assert least * alone < both < 2.0 * alone


def test_a_range_of_noise_counts_its_least():
    line = {"count": 2, "law": "gaussian", "relation": "replace one record", "sampling": None, "mu_squared": 0.0}
    line |= {"smallest_noise_multiplier": 5.0}
    fields = {"epsilon": 9.0, "delta": 1e-6, "spent_epsilon": 9.0, "private": True}
    found = [
        verify(json.dumps({**fields, "releases": [{**line, "largest_noise_multiplier": largest}]})).recomputed_epsilon
        for largest in (5.0, 1e300, "inf")
    ]
    one = verify(json.dumps({**fields, "releases": [{**line, "count": 1, "largest_noise_multiplier": 5.0}]}))
    assert found[0] > found[1] == found[2] == pytest.approx(one.recomputed_epsilon, rel=1e-3)


def test_absurd_batches_are_told_at_once():
    for changes in ({"smallest_noise_multiplier": 1e-300}, {"count": 10**290}, {"count": 10**9}):
        fields = on_batches()
        fields["releases"][0] |= changes
        assert verify(json.dumps(fields)).recomputed_epsilon == math.inf


def test_multiclass(rng):
    X = rng.normal(size=(3000, 2))
    model = DPLogisticRegression(feature_bounds=(-4, 4)).fit(X, np.arange(3000) % 3)
    assert verify(model.privacy_.to_json()).verified


@pytest.mark.parametrize(
    ("lie", "problem"),
    [
        (lambda s: s.update(epsilon=0.5), "more than claimed"),
        (lambda s: s.update(spent_epsilon=0.5), "more than stated as spent"),
        (lambda s: s["releases"][-1].update(count=10 * s["releases"][-1]["count"]), "more than claimed"),
        (lambda s: s["releases"].append(dict(s["releases"][-1])), "more than claimed"),
        (
            lambda s: s["releases"][-1].update(smallest_noise_multiplier=1.0, largest_noise_multiplier=1.0),
            "more than claimed",
        ),
        (lambda s: s["releases"][0].update(smallest_noise_multiplier=0.0), "more than claimed"),
        (lambda s: s.update(private=False), "can be reproduced"),
        (lambda s: s.update(epsilon="inf"), "infinite"),
        (lambda s: s["releases"][0].update(relation="add or remove one record"), "do not add up"),
    ],
)
def test_false_statements_are_not(rng, lie, problem):
    fields = statement(rng)
    lie(fields)
    result = verify(json.dumps(fields))
    assert not result.verified
    assert problem in str(result)


def test_a_small_sum_beside_a_range_of_noise_is_not_believed(rng):
    fields = statement(rng, solver=DPCD(n_passes=3, clip=[0.5, 1.0, 2.0, 4.0]))
    honest = verify(json.dumps(fields)).recomputed_epsilon
    fields["releases"][-1]["mu_squared"] = 1e-12
    least = verify(json.dumps(fields)).recomputed_epsilon
    assert 0.5 * honest < least < honest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "it has no delta, epsilon"),
        ('{"epsilon": 1, "delta": 2, "spent_epsilon": 1, "private": true, "releases": []}', "delta"),
        ('{"epsilon": true, "delta": 0.1, "spent_epsilon": 1, "private": true, "releases": []}', "not a number"),
        ('{"epsilon": -1, "delta": 0.1, "spent_epsilon": 1, "private": true, "releases": []}', "negative"),
        ('{"epsilon": 1, "delta": 0.1, "spent_epsilon": 1, "private": true, "releases": 3}', "list"),
        ('{"epsilon": 1, "delta": 0.1, "spent_epsilon": 1, "private": true, "releases": [{}]}', "law is neither"),
    ],
)
def test_what_is_no_statement_is_said_to_be_none(text, message):
    with pytest.raises(StatementError, match=message):
        verify(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(["epsilon", "delta", "spent_epsilon", "private", "releases"])


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(keys, json_values))
def test_the_parser_survives_anything(fields):
    base = {"epsilon": 1.0, "delta": 0.1, "spent_epsilon": 1.0, "private": True, "releases": []}
    try:
        result = verify(json.dumps(base | fields))
    except StatementError:
        return
    assert result.verified in (True, False)


release_keys = st.sampled_from(["count", "smallest_noise_multiplier", "largest_noise_multiplier", "law", "sampling"])


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(release_keys, json_values, min_size=1))
def test_the_parser_survives_any_release(changes):
    release = {"count": 3, "smallest_noise_multiplier": 9.0, "largest_noise_multiplier": 9.0, "law": "gaussian"}
    release |= {"sampling": None, "mu_squared": 0.1, "relation": "replace one record"} | changes
    fields = {"epsilon": 1.0, "delta": 0.1, "spent_epsilon": 1.0, "private": True, "releases": [release]}
    try:
        assert verify(json.dumps(fields)).recomputed_epsilon >= 0.0
    except StatementError:
        return


@pytest.mark.parametrize(("multiplier", "count"), [(1e-300, 1), (1e-3, 1), (9.0, 1e6), (0.5, 1e300)])
def test_absurd_costs_are_told_at_once(multiplier, count):
    release = {"count": count, "smallest_noise_multiplier": multiplier, "largest_noise_multiplier": multiplier}
    release |= {"law": "gaussian", "sampling": None, "relation": "replace one record"}
    fields = {"epsilon": 1.0, "delta": 1e-6, "spent_epsilon": 1.0, "private": True, "releases": [release]}
    result = verify(json.dumps(fields))
    assert not result.verified
    assert result.recomputed_epsilon == math.inf


def test_command_line(rng, tmp_path):
    path = tmp_path / "statement.json"
    path.write_text(json.dumps(statement(rng)))
    runner = CliRunner()
    good = runner.invoke(cli.app, ["verify", str(path)])
    assert good.exit_code == 0
    assert "verified" in good.output
    path.write_text(json.dumps(statement(rng) | {"epsilon": 0.1}))
    assert runner.invoke(cli.app, ["verify", str(path)]).exit_code == 1
    path.write_text("nonsense")
    assert runner.invoke(cli.app, ["verify", str(path)]).exit_code == 2
    assert runner.invoke(cli.app, ["verify", str(tmp_path / "missing.json")]).exit_code == 2
    audited = runner.invoke(cli.app, ["audit", "--trials", "60", "--plot", str(tmp_path / "audit.png")])
    assert audited.exit_code == 0, audited.output
    assert "not refuted" in audited.output
    assert (tmp_path / "audit.png").is_file()
    assert runner.invoke(cli.app, ["audit", "--epsilon", "-1", "--trials", "60"]).exit_code == 2
    assert math.isfinite(verify(json.dumps(statement(rng))).recomputed_epsilon)
