"""The paper's experiments: `settings` (the paper as data), `runs` (the grid) and `report` (tables and figures).

None of this is private: it tunes on the data it reports on, as the paper does, and shows objective values.
"""
