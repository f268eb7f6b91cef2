# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Privacy accounting: participation patterns, sensitivity, epsilon, statements.

This package needs only NumPy, SciPy and dp_accounting, and never loads
TensorFlow. Each name below is loaded when it is first used, so a command that
needs one of them does not wait for the others.
"""

from tff_dp import _lazy

# Public name -> module of this package.
_HOMES = {
    'AveragedCheckInDpEvent': 'accounting.events.run_events',
    'BinomialSumDpEvent': 'accounting.events.record_events',
    'BudgetLedger': 'ledger.budget',
    'Candidate': 'accounting.protocols.best_bound',
    'Certificate': 'accounting.protocols.best_bound',
    'CheckInPLDAccountant': 'accounting.protocols.protocol_accountant',
    'Declarations': 'statement.declarations',
    'DiscreteGaussianSumDpEvent': 'accounting.events.record_events',
    'DisjointBlocks': 'accounting.silos.silo_sampling',
    'DisjointRecordsDpEvent': 'accounting.events.record_events',
    'FixedOrderPattern': 'accounting.sensitivity.patterns',
    'FixedSize': 'accounting.silos.silo_sampling',
    'FixedSizeRecordDpEvent': 'accounting.events.record_events',
    'FixedWindowCheckInDpEvent': 'accounting.events.run_events',
    'GaussianLocalDpEvent': 'accounting.events.run_events',
    'GaussianRecordDpEvent': 'accounting.events.record_events',
    'LaplaceLocalDpEvent': 'accounting.events.run_events',
    'LocalDpEvent': 'accounting.events.run_events',
    'MinSeparationPattern': 'accounting.sensitivity.patterns',
    'NeighboringRelation': 'accounting.events.run_events',
    'OncePerTreePattern': 'accounting.sensitivity.patterns',
    'ParticipationLedger': 'ledger.participation_ledger',
    'ParticipationLimits': 'accounting.sensitivity.patterns',
    'ParticipationPattern': 'accounting.sensitivity.patterns',
    'PoissonRecordDpEvent': 'accounting.events.record_events',
    'PoissonSampling': 'accounting.silos.silo_sampling',
    'PrivacyStatement': 'statement.statement',
    'RandomAllocationDpEvent': 'accounting.events.run_events',
    'RandomizedResponseLocalDpEvent': 'accounting.events.run_events',
    'ShuffledCheckInDpEvent': 'accounting.events.run_events',
    'ShuffledDpEvent': 'accounting.events.run_events',
    'SiloBudget': 'ledger.silo_budget',
    'SiloEvent': 'accounting.silos.silo_events',
    'SkellamSumDpEvent': 'accounting.events.record_events',
    'SlidingWindowCheckInDpEvent': 'accounting.events.run_events',
    'SphereLocalDpEvent': 'accounting.events.run_events',
    'account_noise': 'accounting.silos.silo_sampling',
    'amplify': 'accounting.protocols.best_bound',
    'calibrate_noise': 'accounting.silos.silo_calibration',
    'effective_sigma': 'accounting.events.run_events',
    'exact_delta': 'accounting.curves.gaussian',
    'exact_epsilon': 'accounting.curves.gaussian',
    'noise_multiplier': 'accounting.calibration',
    'rdp_epsilon': 'accounting.curves.gaussian',
    'run_event': 'accounting.events.run_events',
    'sigma_for': 'accounting.curves.gaussian',
    'squared_sensitivity': 'accounting.sensitivity.tree_sensitivity',
    'squared_sensitivity_by_round': 'accounting.sensitivity.tree_sensitivity',
    'tree_lengths': 'accounting.sensitivity.patterns',
    'zcdp_rho': 'accounting.curves.gaussian',
}

__getattr__, __dir__, __all__ = _lazy.names(
    __name__, {name: f'tff_dp.{home}' for name, home in _HOMES.items()}
)
