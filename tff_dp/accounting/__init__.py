# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Privacy accounting: participation patterns, sensitivity, events, epsilon.

This package needs only NumPy, SciPy and dp_accounting, and never loads
TensorFlow. Each name below is loaded when it is first used, so a command that
needs one of them does not wait for the others.
"""

from tff_dp import _lazy

# Public name -> module of this package.
_HOMES = {
    'ProtocolAccountant': 'accounting.protocols.protocol_accountant',
    'Declarations': 'statement.declarations',
    'NeighboringRelation': 'accounting.events.run_events',
    'amplify': 'accounting.protocols.best_bound',
}

__getattr__, __dir__, __all__ = _lazy.names(
    __name__, {name: f'tff_dp.{home}' for name, home in _HOMES.items()}
)
