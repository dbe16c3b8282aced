import json
import math
from functools import cache

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dpcd import DPLogisticRegression, DPRidge, DPStandardScaler, PrivateSearch, UselessModelWarning, cli
from dpcd.privacy import PrivacyBudget
from dpcd.privacy.rivals.sampling import FixedSize, planned_order, sampled_noise_multiplier
from dpcd.solvers import DPCD, DPGCD, DPSGD, DPSVRG, LaplaceSmoothness, Screened
from dpcd.verify import UNSEEN, StatementError, verify

# As if the noise had been secure: what is checked here is arithmetic.
SECURE = {"private": True, "noise": "OpenDP discrete Gaussian"}
ADD_OR_REMOVE = "add or remove one record (their number taken as public)"
ALLOCATION = DPCD(n_passes=3, clip=(0.1, 1.0, 50.0, 4.0))


def fitted(rng, estimator):
    X = rng.normal(size=(2000, 3))
    return json.loads(estimator.fit(X, X[:, 0] + rng.normal(size=2000)).privacy_.to_json()) | SECURE


def statement(rng, **settings):
    bounds = {"feature_bounds": (-4, 4), "target_bounds": (-5, 5), "random_state": 0}
    return fitted(rng, DPRidge(**(bounds | settings)))


@cache
def honest_text(solver):
    """What statements that lie differ from in one thing."""
    return json.dumps(statement(np.random.default_rng(0), solver=solver))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"epsilon": 0.1},
        {"epsilon": 8.0, "delta": 1e-9},
        {"smoothness": LaplaceSmoothness()},
        {"solver": ALLOCATION},
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
    assert 0.95 * result.stated_epsilon <= result.recomputed_epsilon <= 1.0001 * result.stated_epsilon
    if fields["order"] is None:
        assert result.recomputed_epsilon == pytest.approx(result.stated_epsilon, rel=1e-7)
    assert "verified" in str(result)
    assert all(unseen in str(result) for unseen in UNSEEN)
    about_poisson = any("add or remove" in line["relation"] for line in fields["releases"])
    assert [("number is public" in warning) for warning in result.warnings] == [True] * about_poisson


def test_scalers_and_searches_are_verified(rng):
    for epsilon in (0.5, 5.0, 50.0):
        assert verify(json.dumps(fitted(rng, DPStandardScaler(epsilon=epsilon, random_state=0)))).verified
        search = PrivateSearch(DPRidge(), {"alpha": [1e-3, 10.0]}, epsilon=epsilon, random_state=0)
        fields = fitted(rng, search)
        result = verify(json.dumps(fields))
        assert result.verified, str(result)
        assert not verify(json.dumps(fields | {"epsilon": 0.999 * epsilon})).verified


def test_gaussian_releases_may_be_added_up_at_an_order():
    """As they are in a ledger that admits secret batches."""
    fields = json.loads(honest_text(ALLOCATION))
    costs, delta, order = sum(line["mu_squared"] for line in fields["releases"]), fields["delta"], 12.0
    spent = costs * order / 2 + math.log1p(-1 / order) - math.log(order * delta) / (order - 1)
    fields |= {"order": order, "spent_epsilon": spent, "epsilon": spent}
    result = verify(json.dumps(fields))
    assert result.verified, str(result)
    assert result.recomputed_epsilon < 0.99 * spent
    assert "more than stated" in str(verify(json.dumps(fields | {"spent_epsilon": spent - 1e-6})))
    assert "less than stated" in str(verify(json.dumps(fields | {"order": None})))


def made_of(releases, relation="replace one record", n_records=10_000, epsilon=1.0, delta=1e-8, order=None):
    """A statement about these lines and nothing else."""
    lines = [{"law": "gaussian", "relation": relation, "sampling": None} | line for line in releases]
    fields = {"epsilon": epsilon, "delta": delta, "spent_epsilon": epsilon, "order": order, "releases": lines}
    return fields | SECURE | {"relation": relation, "assumptions": [f"{n_records} records, 5 features"]}


def on_batches(size=100, n_records=10_000, count=500, epsilon=0.5, **changes):
    """A statement about nothing but releases on batches, with the noise that the budget asks for."""
    sampling, delta = FixedSize(size, n_records), 1e-8
    budget = PrivacyBudget(epsilon, delta, planned_order(sampling, epsilon, delta, count, 5))
    multiplier = sampled_noise_multiplier(sampling, budget, count, 5)
    release = {"count": count, "mu_squared": 0.0}
    release |= {"smallest_noise_multiplier": multiplier, "largest_noise_multiplier": multiplier}
    release |= {"sampling": {"kind": "FixedSize", "size": size, "n_records": n_records}} | changes
    return made_of([release], n_records=n_records, epsilon=epsilon, order=budget.order)


@pytest.mark.parametrize(("size", "count"), [(1, 10**6), (10, 500), (100, 500), (2000, 40), (9999, 1)])
@pytest.mark.parametrize("epsilon", [0.1, 3.0, 20.0])
def test_the_cost_of_batches_is_computed_by_another_integral(size, count, epsilon):
    fields = on_batches(size, count=count, epsilon=epsilon)
    honest = verify(json.dumps(fields))
    assert honest.verified, str(honest)
    # Our own curve is a chord between some whole orders.
    assert honest.recomputed_epsilon > 0.95 * epsilon
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
        ({"sampling": {"kind": "Poisson", "rate": 0.5}}, "n_records"),
        ({"sampling": {"kind": "other"}}, "unknown kind"),
        ({"sampling": [1]}, "not an object"),
        ({"law": "laplace"}, "laplace releases on batches"),
        ({"relation": ["replace one record"]}, "not a text"),
        ({"count": "inf"}, "whole number"),
        ({"count": 10**400}, "beyond all numbers"),
        ({"smallest_noise_multiplier": "inf"}, "not finite"),
        ({"selection": {"mean": 10.0, "shape": 0.0}}, "candidates with batches"),
        ({"noise_multipliers": 3}, "list of pairs"),
        ({"noise_multipliers": [[5.0, 1, 1]]}, "list of pairs"),
        ({"noise_multipliers": [[5.0, 1.5]]}, "whole number"),
        ({"noise_multipliers": [["inf", 500]]}, "not finite"),
        ({"noise_multipliers": [[-5.0, 500]]}, "negative"),
        ({"mu_squared": -1.0}, "negative"),
        ({"discretization": -1.0}, "negative"),
    ],
)
def test_releases_that_cannot_be_are_refused(changes, message):
    fields = on_batches()
    fields["releases"][0] |= changes
    with pytest.raises(StatementError, match=message):
        verify(json.dumps(fields))


@pytest.mark.parametrize(
    "beside",
    [
        {"selection": {"mean": 10.0, "shape": 0.0}},
        {"sampling": {"kind": "Poisson", "rate": 0.1, "n_records": 10_000}},
    ],
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
            ADD_OR_REMOVE,
        ),
        ({"kind": "Poisson", "rate": 0.01, "n_records": 10_000}, "replace one record"),
    ):
        fields = on_batches(sampling=sampling, relation=relation) | {"relation": relation}
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
    line = {"count": 2, "smallest_noise_multiplier": 5.0, "mu_squared": 0.0}
    found = [
        verify(json.dumps(made_of([line | {"largest_noise_multiplier": largest}]))).recomputed_epsilon
        for largest in (5.0, 1e300, "inf")
    ]
    one = verify(json.dumps(made_of([line | {"count": 1, "largest_noise_multiplier": 5.0}])))
    assert found[0] > found[1] == found[2] == pytest.approx(one.recomputed_epsilon, rel=1e-12)


def test_absurd_batches_are_told_at_once():
    for changes in ({"smallest_noise_multiplier": 1e-300}, {"count": 10**290}, {"count": 10**9}):
        fields = on_batches()
        fields["releases"][0] |= changes
        assert verify(json.dumps(fields)).recomputed_epsilon == math.inf


def test_multiclass(rng):
    X = rng.normal(size=(3000, 2))
    model = DPLogisticRegression(feature_bounds=(-4, 4)).fit(X, np.arange(3000) % 3)
    assert verify(model.privacy_.to_json()).verified


def changed(fields, path, value):
    """The same statement with one thing in it changed; a function of the old value, or the new one."""
    *above, last = path
    place = fields
    for key in above:
        place = place[key]
    place[last] = value(place[last]) if callable(value) else value
    return fields


LINE = ("releases", -1)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("epsilon",), 0.5, "more than claimed"),
        (("epsilon",), lambda true: 0.999999 * true, "more than claimed"),
        (("spent_epsilon",), lambda true: 0.5 * true, "more than stated as spent"),
        (("spent_epsilon",), lambda true: true - 1e-6, "more than stated as spent"),
        (("spent_epsilon",), lambda true: true + 1e-6, "less than stated as spent"),
        (("spent_epsilon",), 1.1, "more is stated as spent than is claimed"),
        (("delta",), lambda true: 0.999 * true, "more than claimed"),
        (("delta",), 1e-3, "less than stated as spent"),
        (("mu",), lambda true: 0.999 * true, "mu contradicts"),
        (("private",), False, "can be reproduced"),
        (("noise",), "seeded: not private", "not known to be secret"),
        (("epsilon",), "inf", "infinite"),
        (("releases",), [], "no releases"),
        (("releases",), lambda true: [*true, true[-1]], "more than claimed"),
        (("releases",), lambda true: true[:-1], "less than stated as spent"),
        (("relation",), ADD_OR_REMOVE, "another neighbouring relation than its releases"),
        ((*LINE, "relation"), ADD_OR_REMOVE, "do not add up"),
        ((*LINE, "relation"), "same data", "is neither"),
        ((*LINE, "count"), lambda true: true + 1, "not as many as count says"),
        ((*LINE, "smallest_noise_multiplier"), lambda true: 1.01 * true, "smallest noise multiplier"),
        ((*LINE, "largest_noise_multiplier"), lambda true: 1.01 * true, "largest noise multiplier"),
        ((*LINE, "noise_multipliers", 0, 0), lambda true: 0.999 * true, "more than claimed"),
        ((*LINE, "noise_multipliers", 0, 0), 0.0, "more than claimed"),
        ((*LINE, "noise_multipliers", 0, 1), lambda true: true + 1, "more than claimed"),
        ((*LINE, "noise_multipliers"), lambda true: true[1:], "less than stated as spent"),
        ((*LINE, "mu_squared"), lambda true: 0.5 * true, ": mu_squared contradicts"),
        ((*LINE, "discretization"), lambda true: 0.9 * true, "discretization is less"),
        ((*LINE, "discretization"), 1e-3, "more than claimed"),
        ((*LINE, "discretization"), 1e9, "more than claimed"),
        ((*LINE, "discretization"), "inf", "more than claimed"),
    ],
)
def test_one_thing_that_is_changed_is_found_out(path, value, problem):
    fields = json.loads(honest_text(ALLOCATION))
    assert verify(json.dumps(fields)).verified
    assert len({multiplier for multiplier, _ in fields["releases"][-1]["noise_multipliers"]}) == 4
    result = verify(json.dumps(changed(fields, path, value)))
    assert not result.verified
    assert problem in str(result)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("epsilon",), 0.999, "more than claimed"),
        (("spent_epsilon",), 0.999, "more than stated as spent"),
        (("assumptions", 0), "1999 records, 3 features", "another number of records"),
        (("assumptions",), ["3 features"], "another number of records"),
        ((*LINE, "sampling", "n_records"), 10**9, "another number of records"),
        ((*LINE, "sampling", "size"), 21, "more than claimed"),
        ((*LINE, "sampling", "size"), 2000, "more than claimed"),
        ((*LINE, "sampling"), None, "more than claimed"),
        ((*LINE, "noise_multipliers", 0, 0), lambda true: 0.99 * true, "more than claimed"),
        ((*LINE, "mu_squared"), 1e-3, "mu_squared contradicts"),
        ((*LINE, "relation"), ADD_OR_REMOVE, "another neighbouring relation than their theorem"),
    ],
)
def test_one_thing_that_is_changed_about_batches_is_found_out(path, value, problem):
    fields = json.loads(honest_text(DPSGD(n_passes=2, batch_size=20)))
    assert verify(json.dumps(fields)).verified
    result = verify(json.dumps(changed(fields, path, value)))
    assert not result.verified
    assert problem in str(result)


@pytest.mark.parametrize("key", ["count", "smallest_noise_multiplier", "mu_squared"])
@pytest.mark.parametrize("solver", [None, DPGCD(n_updates=5)], ids=["laplace", "gumbel"])
def test_what_counts_as_gaussian_is_computed_anew(rng, solver, key):
    settings = {"smoothness": LaplaceSmoothness()} if solver is None else {"solver": solver}
    fields = statement(rng, **settings)
    law = "laplace" if solver is None else "gumbel"
    line = next(line for line in fields["releases"] if line["law"] == law)
    line[key] *= 2
    assert not verify(json.dumps(fields)).verified


def test_releases_on_batches_need_an_order():
    with pytest.raises(StatementError, match="no order"):
        verify(json.dumps(on_batches() | {"order": None}))
    for order in (1.0, 0.5, 1e9, "inf"):
        with pytest.raises(StatementError, match="between 1"):
            verify(json.dumps(on_batches() | {"order": order}))


@pytest.mark.parametrize("law", ["gaussian", "laplace", "gumbel"])
@pytest.mark.parametrize("multiplier", [0.5, 3.0, 40.0, 1e5])
@pytest.mark.parametrize("discretization", [0.0, 1e-3])
def test_the_closed_form_against_mpmath(law, multiplier, discretization):
    line = {"count": 3, "law": law, "smallest_noise_multiplier": multiplier, "largest_noise_multiplier": multiplier}
    result = verify(json.dumps(made_of([line | {"discretization": discretization}])))
    with mpmath.workdps(60):
        of_one = 1 / mpmath.mpf(multiplier)
        if law != "gaussian":
            of_one = 2 * mpmath.sqrt(2) * mpmath.erfinv(mpmath.tanh(of_one / 2))
        mu = mpmath.sqrt(3) * of_one
        epsilon = mpmath.mpf(result.recomputed_epsilon) - 2 * mpmath.mpf(discretization)
        found = mpmath.ncdf(-epsilon / mu + mu / 2) - mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)
        assert float(found) == pytest.approx(1e-8 * math.exp(-discretization), rel=1e-6)


@pytest.mark.parametrize("multiplier", [2.0, 30.0])
def test_the_closed_form_against_dp_accounting(multiplier):
    line = {"count": 3, "smallest_noise_multiplier": multiplier, "largest_noise_multiplier": multiplier}
    accountant = PLDAccountant(value_discretization_interval=1e-5)
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(multiplier), 3))
    result = verify(json.dumps(made_of([line])))
    assert result.recomputed_epsilon == pytest.approx(accountant.get_epsilon(1e-8), rel=1e-3)


def test_what_is_worth_a_warning(rng):
    with pytest.warns(UselessModelWarning, match="whole records"):
        fields = statement(rng, delta=1 / 2000, allow_large_delta=True)
    assert "delta = 0.0005 is not below 1/n = 0.0005" in str(verify(json.dumps(fields)))
    assert not verify(json.dumps(fields | {"delta": 1 / 2001})).warnings
    result = verify(json.dumps(fields | {"assumptions": ["many records, 3 features"]}))
    assert result.verified
    assert "do not begin with the number of records" in str(result)


def test_statements_that_list_no_multipliers_are_believed_within_limits():
    fields = json.loads(honest_text(ALLOCATION))
    honest = verify(json.dumps(fields)).recomputed_epsilon
    for line in fields["releases"]:
        del line["noise_multipliers"]
    old = verify(json.dumps(fields))
    assert old.verified
    assert old.recomputed_epsilon == pytest.approx(honest, rel=1e-9)
    assert [warning[:6] for warning in old.warnings] == [f"line {len(fields['releases'])}"]
    fields["releases"][-1]["mu_squared"] = 1e-12
    lied = verify(json.dumps(fields))
    assert not lied.verified
    # One of them at least has the least noise that is said.
    least = fields["releases"][-1]["smallest_noise_multiplier"]
    one = [*fields["releases"][:-1], fields["releases"][-1] | {"count": 1, "largest_noise_multiplier": least}]
    assert lied.recomputed_epsilon > verify(json.dumps(fields | {"releases": one})).recomputed_epsilon


MINIMAL = {
    "epsilon": 1, "delta": 0.1, "spent_epsilon": 1, "relation": "replace one record", "assumptions": [],
    "releases": [], **SECURE,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "it has no assumptions, delta, epsilon"),
        (json.dumps(MINIMAL | {"delta": 2}), "delta"),
        (json.dumps(MINIMAL | {"delta": 0}), "delta"),
        (json.dumps(MINIMAL | {"epsilon": True}), "not a number"),
        (json.dumps(MINIMAL | {"epsilon": -1}), "negative"),
        (json.dumps(MINIMAL | {"epsilon": math.nan}), "NaN is not JSON"),
        (json.dumps(MINIMAL | {"epsilon": math.inf}), "Infinity is not JSON"),
        (json.dumps(MINIMAL).replace("0.1", "1e999"), "beyond all numbers"),
        (json.dumps(MINIMAL | {"notes": {"beside": math.nan}}), "NaN is not JSON"),
        (json.dumps(MINIMAL).replace("{", '{"epsilon": 1e-9, '), "a key occurs twice"),
        (json.dumps(MINIMAL | {"releases": [{"law": 1}]}).replace('"law": 1', '"a": 1, "a": 1'), "twice"),
        (json.dumps(MINIMAL | {"releases": 3}), "list"),
        (json.dumps(MINIMAL | {"releases": [{}]}), "law is neither"),
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
keys = st.sampled_from([*MINIMAL, "order", "mu"])


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(keys, json_values))
def test_the_parser_survives_anything(fields):
    try:
        result = verify(json.dumps(MINIMAL | fields))
    except StatementError:
        return
    assert result.verified in (True, False)


release_keys = st.sampled_from(
    ["count", "smallest_noise_multiplier", "largest_noise_multiplier", "law", "sampling", "noise_multipliers"]
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(release_keys, json_values, min_size=1))
def test_the_parser_survives_any_release(changes):
    release = {"count": 3, "smallest_noise_multiplier": 9.0, "largest_noise_multiplier": 9.0, "mu_squared": 0.1}
    try:
        assert verify(json.dumps(made_of([release | changes]))).recomputed_epsilon >= 0.0
    except StatementError:
        return


@pytest.mark.parametrize(("multiplier", "count"), [(1e-300, 1), (1e-3, 1), (9.0, 1e6), (0.5, 1e300)])
def test_absurd_costs_are_told_at_once(multiplier, count):
    release = {"count": count, "smallest_noise_multiplier": multiplier, "largest_noise_multiplier": multiplier}
    result = verify(json.dumps(made_of([release])))
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
