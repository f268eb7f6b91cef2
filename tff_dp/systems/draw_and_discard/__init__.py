# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draw and discard: k models, one of which is drawn and one overwritten."""

from tff_dp import _lazy
from tff_dp.systems.system import At
from tff_dp.systems.system import Command
from tff_dp.systems.system import Offered
from tff_dp.systems.system import System

_FLAGS = At(f'{__name__}.flags')
SYSTEMS = (
    System(
        kind='draw_and_discard',
        page='docs/draw_and_discard.md',
        plan=At(f'{__name__}.plan', 'DrawAndDiscardPlan'),
        training=At(f'{__name__}.training', 'TRAINING'),
        points={
            'mechanism': 'client_step noise_scale num_params server',
            'guarantee': 'epsilon_of_one_report added_reports',
            'implementation': 'coins',
        },
        commands={
            'draw-and-discard': Command(
                'noised models of one client that a server writes over its'
                ' instances',
                _FLAGS,
                At(f'{__name__}.examples', 'EXAMPLES'),
            ),
        },
        offers={
            'draw-and-discard': Offered(
                'nobody',
                'clients noise whole models, of which a server keeps a few',
                At(f'{__name__}.offer', 'draw_and_discard'),
            ),
        },
    ),
)
__getattr__, __dir__, __all__ = _lazy.names(
    __name__,
    {
        'ClientStep': f'{__name__}.client_steps',
        'DrawAndDiscardPlan': f'{__name__}.plan',
        'SpamFilter': f'{__name__}.spam_filters',
        'build_draw_and_discard': f'{__name__}.process',
        'calibrate_spam_filter': f'{__name__}.spam_filters',
    },
    on_tff=('build_draw_and_discard',),
)
