"""The way of one fit through the house: which files it visits, and how often it goes from one to another.

Run ``python benchmarks/trace.py``. It counts, over one `DPLasso().fit` with nothing declared, the files of the package
that are entered, the functions, the calls, and the calls that cross from one file to another. Compiled loops and the
formulas inside them (losses, penalties, compilation) are left out.
"""

import argparse
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

import dpcd
from dpcd import DPLasso

PACKAGE = Path(dpcd.__file__).parent
LEFT_OUT = {"compilation.py", "losses.py", "penalties.py", "privacy/kernels.py"}


def traced(run):
    """Calls from file to file, and the functions called, while something runs."""
    edges, functions = Counter(), Counter()

    def name(frame):
        path = Path(frame.f_code.co_filename) if frame is not None else Path()
        return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None

    def profile(frame, event, _):
        if event != "call" or (callee := name(frame)) in LEFT_OUT or callee is None:
            return
        # The nearest caller in the package: what numpy and the like do in between is no visit.
        caller = frame.f_back
        while caller is not None and (name(caller) is None or name(caller) in LEFT_OUT):
            caller = caller.f_back
        functions[callee, frame.f_code.co_qualname] += 1
        edges[name(caller), callee] += 1

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return edges, functions


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", action="store_true", help="list the crossings between each pair of files")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("columns   files   functions   calls   pairs of files   crossings")
    for n_features in (4, 14):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(1500, n_features))
        y = X[:, 0] + rng.normal(size=1500)
        # Once before, so that compiling is no part of it.
        DPLasso(random_state=0).fit(X, y)
        edges, functions = traced(lambda X=X, y=y: DPLasso(random_state=0).fit(X, y))
        crossed = Counter({edge: count for edge, count in edges.items() if None not in edge and edge[0] != edge[1]})
        files = {file for file, _ in functions}
        print(
            f"{n_features:>7} {len(files):>7} {len(functions):>11} {sum(functions.values()):>7} {len(crossed):>16} "
            f"{sum(crossed.values()):>11}"
        )
        if arguments.edges:
            for (caller, callee), count in crossed.most_common():
                print(f"{count:>8}  {caller} -> {callee}")


if __name__ == "__main__":
    main()
