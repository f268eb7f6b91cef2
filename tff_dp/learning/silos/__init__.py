# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Learning from silos whose records are protected, each silo alone or in sums.
"""

# pylint: disable=g-importing-member
from tff_dp.accounting.silos.silo_terms import Phase
from tff_dp.accounting.silos.silo_terms import SiloTerms
from tff_dp.learning.silos.accelerated import build_accelerated_mb_sgd_erm
from tff_dp.learning.silos.accelerated import build_localized_mb_sgd
from tff_dp.learning.silos.accelerated import build_one_pass_accelerated_mb_sgd
from tff_dp.learning.silos.metrics import PrivateMetric
from tff_dp.learning.silos.moreau import build_linear_model
from tff_dp.learning.silos.moreau import moreau_envelope
from tff_dp.learning.silos.planning import equal_blocks
from tff_dp.learning.silos.process import SiloProcess
from tff_dp.learning.silos.secure_sums import build_secure_sum_sgd
from tff_dp.learning.silos.server import ReportedMeanFactory
from tff_dp.learning.silos.sgd import build_isrl_local_sgd
from tff_dp.learning.silos.sgd import build_noisy_mb_sgd
from tff_dp.learning.silos.terms import silo_data
from tff_dp.mechanisms.minibatch_schedules import choose_rounds
from tff_dp.mechanisms.minibatch_schedules import choose_smoothing
from tff_dp.mechanisms.minibatch_schedules import multi_stage_schedule
from tff_dp.mechanisms.minibatch_schedules import Stage
