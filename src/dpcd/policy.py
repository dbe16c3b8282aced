"""Every tuned number of a default fit: what it means, and where it comes from.

Numbers that follow from a proof, or that only say how finely something is computed, stay beside the code that uses
them. These were chosen: by simulation, on public tables (`benchmarks/public_tables.py` names them), or by convention (a
false-alarm rate, so many deviations). `benchmarks/constants.py` halves and doubles them, and `docs/methods.md` says in
which step of a fit each group is used.

All of them are public, and so are the decisions made with them: they see public and released numbers alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """What the default path goes by. In units: records are those of budget, nμ; shares are of μ²."""

    # Ranges: what is released to find out where columns and the target lie.
    # Noise in a count, as a part of the records, with which most columns are read well; tails and rare flags are seen.
    shows_columns: float = 0.05
    shows_tails: float = 0.005
    # Noise in counts, as a part of the records, from which on columns do not stand out.
    hides_columns: float = 0.17
    # Noise in a mean that is worth paying for, as a part of the deviation, and within how many deviations it is taken.
    noise_in_mean: float = 0.2
    mean_within: float = 2.0
    # Looks around what was found, at most; the doubt with which a center is taken, and what is left of it then.
    range_looks: int = 10
    accepted_doubt: float = 0.5
    doubt_left: float = 0.4
    # A column narrower than this part of its octave's width, more likely than not, is looked at again.
    narrow: float = 2.0
    # The least share of any release.
    least_share: float = 0.005
    # Values are clipped so many deviations from the center, or where some surely lie farther out.
    deviations: float = 3.5
    # Most that one look at the columns, all looks, their means, and a look at tails may take; the same for the target;
    # and for the target alone, where columns are hopeless.
    features_look: float = 0.12
    features_looks: float = 0.3
    features_means: float = 0.05
    target_look: float = 0.1
    target_looks: float = 0.4
    target_means: float = 0.1
    alone_look: float = 0.2
    alone_looks: float = 0.8
    tails_look: float = 0.02

    # Reading histograms: the shapes of columns.
    # Part of a shape on either side that counts as no farther out; misfit of shapes to real columns.
    outermost: float = 0.01
    misfit: float = 0.02
    # Deviation of the octave of a column's scale; deviations within which means lie at later looks.
    usual_octaves: float = 10.0
    near: float = 2.0
    # How much smaller than any shape a column in one cell may be; shapes within this factor say the same of its size.
    much_smaller: float = 32.0
    one_size: float = 4.0
    # Deviations of noise with which a count belongs to a column, and the expected number of columns that are noise.
    count_stands_out: float = 4.0
    false_alarms: float = 1e-5

    # Second moments of columns: noise that is worth paying for, most that is paid, and how far histograms tell them.
    noise_in_moment: float = 0.003
    most_for_moments: float = 0.06
    uncertain_moment: float = 0.5

    # Choice of the solver: the largest p³/(nμ) and the least nμ for which a noisy matrix is worth its budget: for the
    # squared loss, whose Hessian it is, and for others, which need more matrices on the way.
    crowded: float = 5.0
    crowded_if_curved: float = 8.0
    records_for_a_matrix: float = 100.0
    records_for_hessians: float = 430.0
    # Screening: from so many columns on, with fewer records for each of them than this.
    many_columns: int = 20
    records_per_column: float = 30.0
    # Columns kept, as a part of √(nμ); clip of the choice, in typical slopes; part of its share that tells that slope.
    screening_kept: float = 0.3
    screening_clip: float = 0.5
    screening_slope: float = 0.1

    # Start: the deviations with which a mean label is believed, and the least flatness of a loss at a constant.
    sure_labels: float = 3.0
    flattest_loss: float = 0.05
    # Continuation in the threshold of Huber losses: share of the look at distances, thresholds that are far, and last
    # steps with the loss itself.
    distance_share: float = 0.01
    far_targets: float = 4.0
    own_threshold_steps: int = 3

    # Second moments as a matrix: norm beyond which rows are shortened, in √p.
    radius: float = 1.5
    # Eigenvalues: beyond so many times the reach of noise they are not noise; raised by so much of √p·noise.
    beyond_noise: float = 1.5
    raised: float = 0.75
    # A direction with less than this part of the largest noise at a second look may be nothing, and keeps this part.
    nothing: float = 0.5
    nothing_keeps: float = 0.3
    # Deviations by which noise may explain more of a spread than it seems.
    fluctuations: float = 2.0
    # What moments and Hessians may take together at most.
    largest_share: float = 0.65

    # Sizes of gradients: noise in counts that is asked for, as a part of the records, and the limits of its share, for
    # losses about labels and for others.
    counting: float = 20.0
    counting_least: float = 0.01
    counting_most: float = 0.25
    counting_least_labels: float = 0.004
    counting_most_labels: float = 0.15
    # Buckets are whole octaves where the noise multiplier exceeds this part of the records.
    coarse: float = 30.0
    # Slopes for labels are bounded: so many octaves below the largest row, in √p, are counted.
    bounded_octaves: int = 12
    longest_row: float = 8.0
    # Deviations with which three octaves show something; fewer where octaves are few.
    visible: float = 5.0
    visible_labels: float = 3.0
    window_octaves: int = 3
    # Deviations with which a bucket is occupied; noise from which on that is in doubt; spread of lognormal sizes then.
    occupied: float = 1.0
    hazy: float = 0.02
    log_spread: float = 0.65
    # Looks taken together where nothing shows, and the part of what is left that they may take.
    size_looks: int = 16
    for_size_looks: float = 0.5
    # Steps before which sizes are seen again, the largest share of each, and the records of budget it is worth.
    seen_again: tuple[int, ...] = (1, 2, 4, 8, 16)
    seen_again_share: float = 0.01
    seen_again_records: float = 30.0
    seen_again_records_labels: float = 40.0

    # Clips: factor·(nμ/p)^power times the mean size, within limits; for losses about labels, whose clips are fair.
    clip_factor: float = 0.3
    clip_power: float = 0.45
    clip_least: float = 0.5
    clip_most: float = 6.0
    label_clip_factor: float = 0.16
    label_clip_power: float = 0.35
    label_clip_least: float = 0.3
    label_clip_most: float = 2.5
    # Noise that is worth a unit of what a clip cuts off; and what that counts for where labels are not looked at.
    worth_of_bias: float = 2.4
    label_bias: float = 0.1
    # Octaves by which a clip may be raised and lowered; deviations with which buckets beyond it count, and how much
    # less where they are hazy; part of what is cut off of normal residuals that cancels out.
    clip_raised: int = 4
    clip_lowered: float = 1.5
    beyond_clip: float = 3.5
    by_chance: float = 2.0
    cancels_out: float = 0.6
    # The larger slope that either label gives a typical record, over that at a prediction of zero.
    typical_reach: float = 1.2

    # Newton steps: how many, and the shares of second moments and of Hessians.
    newton_steps: int = 8
    newton_moments: float = 0.1
    newton_hessians: float = 0.08
    # p²/(nμ) from which on a matrix is noise; budget of a gradient over that of the one before.
    hopeless_matrix: float = 4.0
    newton_growth: float = 1.6
    newton_growth_squared: float = 1.2
    # Steps before which Hessians are released; the fall in curvature at which one more is, the first time and later.
    refreshed: tuple[int, ...] = (1, 3)
    fallen: float = 0.5
    fallen_again: float = 0.65
    # Change of second derivatives where predictions differ by 1; part of hidden moments that is curved.
    change_of_curvature: float = 0.05
    hidden_curvature: float = 0.15
    # Least eigenvalue of a Hessian, as a part of their mean.
    least_eigenvalue: float = 0.05
    # Trust region: so many times the last step, or half of it after one that was too long by so many deviations.
    longer: float = 3.0
    surely_too_long: float = 3.0

    # One-block steps: the most there are, and the share of second moments.
    most_steps: int = 80
    block_moments: float = 0.05
    # Full steps are nμ/(horizon·p) − lost, from so many records on; fewest and longest steps.
    horizon: float = 2.5
    lost_steps: float = 0.3
    too_few_records: float = 8.0
    fewest_steps: int = 4
    longest_step: float = 1.5
    # Where more full steps than this suit the budget, this part of the most steps is enough.
    few_full_steps: float = 8.0
    enough_steps: float = 0.5
    # Budget of a gradient over that of the one before; the larger one from so many full steps on.
    block_growth: float = 1.01
    block_growth_forgotten: float = 1.02
    many_full_steps: float = 25.0
    # Eigenvalues below so many times their noise are not believed; steepest ones below so many times that neither.
    block_believed: float = 2.0
    block_stands_out: float = 1.5
    # Correlation of all columns that moments must show to be worth a release.
    correlated: float = 0.3
    # Parts of the steps whose points are averaged, for at least so many full steps.
    tails: tuple[tuple[float, float], ...] = ((6.0, 0.5), (3.0, 0.3))
    # Part of the gradients' budget that the answer is made of.
    used: float = 0.5
    # Part of the way, and of earlier noise, that a full step does and forgets; deviations with which a move stretches.
    done: float = 0.7
    forgotten: float = 0.7
    sure_move: float = 2.0
    # Share of the look at what the move does to predictions, deviations of the buckets that count, and by how much it
    # must do more than noise would to be in steep directions.
    length_share: float = 0.015
    squares_stand_out: float = 2.5
    steep: float = 1.2

    # Intervals: noise in counts from which on nothing is known of what clips cut off.
    too_hazy: float = 0.05
    # Radius in typical residuals within which sizes are the same; part of clipped labels that does not cancel out.
    same_sizes: float = 0.5
    wrong_labels: float = 0.05


POLICY = Policy()
