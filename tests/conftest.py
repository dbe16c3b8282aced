import os
from pathlib import Path

# One thread of linear algebra in each process: more would fight over the cores.
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402

# The real data sets, where a checkout has them beside it; elsewhere set DPCD_DATA, or those tests are skipped.
_BESIDE = Path(__file__).parents[2] / "shared" / "data"
if "DPCD_DATA" not in os.environ and _BESIDE.is_dir():
    os.environ["DPCD_DATA"] = str(_BESIDE)


@pytest.fixture
def real_data():
    if not os.environ.get("DPCD_DATA"):
        pytest.skip("DPCD_DATA is not set: the real data sets would have to be downloaded")


@pytest.fixture
def rng():
    return np.random.default_rng(0)
