# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Who may claim what: patterns, sensitivity, epsilon, ledgers, statements.

Needs NumPy, SciPy and dp_accounting only, and never loads TensorFlow. The names
below are loaded when they are first used, so that a command line which needs
one of them does not wait for the others.
"""

import importlib

# Public name -> module of this package.
_HOMES = {
    'AveragedCheckInDpEvent': 'protocol_events',
    'BinomialSum': 'vector_sum',
    'BinomialSumDpEvent': 'record_events',
    'BudgetLedger': 'budget',
    'Candidate': 'amplification',
    'Certificate': 'amplification',
    'CheckInPLDAccountant': 'protocol_accountant',
    'DiscreteGaussianSumDpEvent': 'record_events',
    'DisjointBlocks': 'silo_sampling',
    'DisjointRecordsDpEvent': 'record_events',
    'FixedOrderPattern': 'patterns',
    'FixedSize': 'silo_sampling',
    'FixedSizeRecordDpEvent': 'record_events',
    'FixedWindowCheckInDpEvent': 'protocol_events',
    'GaussianLocalDpEvent': 'protocol_events',
    'GaussianRecordDpEvent': 'record_events',
    'IsrlAccountant': 'silo_accountant',
    'LaplaceLocalDpEvent': 'protocol_events',
    'LocalDpEvent': 'protocol_events',
    'MeasuredParticipation': 'measured',
    'MeasuredSensitivity': 'measured',
    'MinSeparationPattern': 'patterns',
    'NeighboringRelation': 'events',
    'NoiseCalibration': 'silo_calibration',
    'OncePerTreePattern': 'patterns',
    'ParticipationLedger': 'ledger',
    'ParticipationLimits': 'patterns',
    'ParticipationPattern': 'patterns',
    'PoissonRecordDpEvent': 'record_events',
    'PoissonSampling': 'silo_sampling',
    'PrivacyStatement': 'statement',
    'RandomAllocationDpEvent': 'protocol_events',
    'RandomizedResponseLocalDpEvent': 'protocol_events',
    'ShuffledCheckInDpEvent': 'protocol_events',
    'ShuffledDpEvent': 'protocol_events',
    'SiloBudget': 'silo_accountant',
    'SiloEvent': 'silo_events',
    'SkellamSumDpEvent': 'record_events',
    'SlidingWindowCheckInDpEvent': 'protocol_events',
    'SphereLocalDpEvent': 'protocol_events',
    'StatementFacts': 'statement',
    'account_noise': 'silo_calibration',
    'amplify': 'amplification',
    'build_statement': 'statement',
    'calibrate_binomial_sum': 'vector_sum',
    'calibrate_noise': 'silo_calibration',
    'effective_sigma': 'events',
    'exact_delta': 'gaussian',
    'exact_epsilon': 'gaussian',
    'measure': 'measured',
    'noise_multiplier': 'calibration',
    'rdp_epsilon': 'gaussian',
    'run_event': 'events',
    'shuffled_epsilon': 'silo_shuffling',
    'sigma_for': 'gaussian',
    'squared_sensitivity': 'tree_sensitivity',
    'squared_sensitivity_by_round': 'tree_sensitivity',
    'tree_lengths': 'patterns',
    'zcdp_rho': 'gaussian',
}


def __getattr__(name: str):
  if name not in _HOMES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  home = importlib.import_module(f'{__name__}.{_HOMES[name]}')
  value = getattr(home, name)
  globals()[name] = value
  return value


def __dir__() -> list[str]:
  return sorted(set(globals()) | set(_HOMES))
