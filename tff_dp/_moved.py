# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where names of earlier versions are now, for the error that names the place.

docs/migrating.md lists the same for readers.
"""

# Package -> {name: full new name}, both without the leading `tff_dp`.
NAMES = {
    'accounting': {
        'AveragedCheckInDpEvent': (
            'accounting.events.run_events.AveragedCheckInDpEvent'
        ),
        'BinomialSumDpEvent': (
            'accounting.events.record_events.BinomialSumDpEvent'
        ),
        'BudgetLedger': 'ledger.budget.BudgetLedger',
        'Candidate': 'accounting.protocols.best_bound.Candidate',
        'Certificate': 'accounting.protocols.best_bound.Certificate',
        'DiscreteGaussianSumDpEvent': (
            'accounting.events.record_events.DiscreteGaussianSumDpEvent'
        ),
        'DisjointRecordsDpEvent': (
            'accounting.events.record_events.DisjointRecordsDpEvent'
        ),
        'FixedOrderPattern': (
            'accounting.sensitivity.patterns.FixedOrderPattern'
        ),
        'FixedSizeRecordDpEvent': (
            'accounting.events.record_events.FixedSizeRecordDpEvent'
        ),
        'FixedWindowCheckInDpEvent': (
            'accounting.events.run_events.FixedWindowCheckInDpEvent'
        ),
        'GaussianLocalDpEvent': (
            'accounting.events.run_events.GaussianLocalDpEvent'
        ),
        'GaussianRecordDpEvent': (
            'accounting.events.record_events.GaussianRecordDpEvent'
        ),
        'LaplaceLocalDpEvent': (
            'accounting.events.run_events.LaplaceLocalDpEvent'
        ),
        'LocalDpEvent': 'accounting.events.run_events.LocalDpEvent',
        'MinSeparationPattern': (
            'accounting.sensitivity.patterns.MinSeparationPattern'
        ),
        'OncePerTreePattern': (
            'accounting.sensitivity.patterns.OncePerTreePattern'
        ),
        'ParticipationLedger': (
            'ledger.participation_ledger.ParticipationLedger'
        ),
        'ParticipationLimits': (
            'accounting.sensitivity.patterns.ParticipationLimits'
        ),
        'ParticipationPattern': (
            'accounting.sensitivity.patterns.ParticipationPattern'
        ),
        'PoissonRecordDpEvent': (
            'accounting.events.record_events.PoissonRecordDpEvent'
        ),
        'RandomAllocationDpEvent': (
            'accounting.events.run_events.RandomAllocationDpEvent'
        ),
        'RandomizedResponseLocalDpEvent': (
            'accounting.events.run_events.RandomizedResponseLocalDpEvent'
        ),
        'ShuffledCheckInDpEvent': (
            'accounting.events.run_events.ShuffledCheckInDpEvent'
        ),
        'ShuffledDpEvent': 'accounting.events.run_events.ShuffledDpEvent',
        'SiloEvent': 'accounting.silos.silo_events.SiloEvent',
        'SkellamSumDpEvent': (
            'accounting.events.record_events.SkellamSumDpEvent'
        ),
        'SlidingWindowCheckInDpEvent': (
            'accounting.events.run_events.SlidingWindowCheckInDpEvent'
        ),
        'SphereLocalDpEvent': 'accounting.events.run_events.SphereLocalDpEvent',
        'calibrate_noise': 'silos.calibrate_noise',
        'effective_sigma': 'accounting.events.run_events.effective_sigma',
        'exact_delta': 'accounting.curves.gaussian.exact_delta',
        'noise_multiplier': 'accounting.calibration.noise_multiplier',
        'rdp_epsilon': 'accounting.curves.gaussian.rdp_epsilon',
        'run_event': 'accounting.events.run_events.run_event',
        'squared_sensitivity': (
            'accounting.sensitivity.tree_sensitivity.squared_sensitivity'
        ),
        'squared_sensitivity_by_round': (
            'accounting.sensitivity.tree_sensitivity.squared_sensitivity_by_round'
        ),
        'tree_lengths': 'accounting.sensitivity.patterns.tree_lengths',
    },
    'learning': {
        'Average': 'learning.averaging.Average',
        'Constraint': 'learning.constraints.Constraint',
        'GeneralizedLinearModel': (
            'learning.linear_models.GeneralizedLinearModel'
        ),
        'PrivateLearningProcess': 'learning.process.PrivateLearningProcess',
        'Projection': 'learning.constraints.Projection',
        'Unconstrained': 'learning.constraints.Unconstrained',
        'build_allocation_sgd': 'allocation.build_allocation_sgd',
        'build_check_in_sgd': 'check_ins.build_check_in_sgd',
        'build_dp_ftrl': 'dp_ftrl.build_dp_ftrl',
        'build_draw_and_discard': 'draw_and_discard.build_draw_and_discard',
        'build_least_squares': 'dp_ftrl.build_least_squares',
        'build_shuffled_check_in_sgd': 'check_ins.build_shuffled_check_in_sgd',
        'draw_and_discard': 'draw_and_discard',
        'moments_norm_bound': 'dp_ftrl.moments_norm_bound',
        'silos': 'silos',
    },
    'integrations': {
        'flower': 'dp_ftrl.flower',
        'nvflare': 'dp_ftrl.nvflare',
    },
    'mechanisms': {
        'BY_NAME': 'mechanisms.catalogue.BY_NAME',
        'Choice': 'mechanisms.choice.Choice',
        'Mechanism': 'mechanisms.mechanism.Mechanism',
        'Row': 'mechanisms.choice.Row',
        'from_description': 'mechanisms.catalogue.from_description',
        'ClientStep': 'draw_and_discard.ClientStep',
        'SpamFilter': 'draw_and_discard.SpamFilter',
        'calibrate_spam_filter': 'draw_and_discard.calibrate_spam_filter',
    },
    'participation': {
        'Schedule': 'participation.sampling.Schedule',
        'AveragedCheckIn': 'check_ins.AveragedCheckIn',
        'CentralGaussian': 'AllocationPlan, with noise_multiplier and'
        ' l2_norm_clip',
        'CyclicAllocation': 'allocation.CyclicAllocation',
        'FixedWindowCheckIn': 'check_ins.FixedWindowCheckIn',
        'RandomAllocation': 'allocation.RandomAllocation',
        'ShuffledCheckIn': 'check_ins.ShuffledCheckIn',
        'ShuffledReports': 'check_ins.ShuffledReports',
        'SlidingWindowCheckIn': 'check_ins.SlidingWindowCheckIn',
    },
    'program': {
        'CheckInDataSource': 'program.ProtocolSource',
        'BUDGET': 'program.run.BUDGET',
        'COMPLETED': 'program.run.COMPLETED',
    },
    'advice': {
        'RELATIONS': 'advice.offers.RELATIONS',
        'Refusal': 'advice.offers.Refusal',
        'TRUST': 'advice.offers.TRUST',
        'TRUSTED': 'advice.offers.TRUSTED',
    },
    'execution': {
        'AsyncInProcessContext': 'execution.in_process.AsyncInProcessContext',
        'ContextClosedError': 'execution.errors.ContextClosedError',
        'ContextReplacedWarning': 'execution.errors.ContextReplacedWarning',
        'InProcessContext': 'execution.in_process.InProcessContext',
        'NativeContext': 'execution.contexts.NativeContext',
        'NativeWorker': 'execution.native.NativeWorker',
        'NativeWorkerError': 'execution.native.NativeWorkerError',
        'set_async_in_process_context': (
            'execution.contexts.set_async_in_process_context'
        ),
        'set_sync_in_process_context': (
            'execution.contexts.set_sync_in_process_context'
        ),
    },
    'execution.cluster': {
        'ClusterContext': 'execution.cluster.context.ClusterContext',
        'Engine': 'execution.cluster.engine.Engine',
        'LocalEngine': 'execution.cluster.engine.LocalEngine',
        'WorkerLostError': 'execution.cluster.engine.WorkerLostError',
    },
    'export': {
        'Finding': 'export.verification.Finding',
    },
    'systems.draw_and_discard': {
        'DrawAndDiscardProcess': (
            'systems.draw_and_discard.process.DrawAndDiscardProcess'
        ),
    },
    'systems.silos': {
        'ReportedMeanFactory': 'systems.silos.server.ReportedMeanFactory',
        'SiloProcess': 'systems.silos.process.SiloProcess',
        'Stage': 'systems.silos.minibatch_schedules.Stage',
        'choose_rounds': 'systems.silos.minibatch_schedules.choose_rounds',
        'choose_smoothing': (
            'systems.silos.minibatch_schedules.choose_smoothing'
        ),
        'equal_blocks': 'systems.silos.planning.equal_blocks',
        'moreau_envelope': 'systems.silos.moreau.moreau_envelope',
        'multi_stage_schedule': (
            'systems.silos.minibatch_schedules.multi_stage_schedule'
        ),
    },
}
