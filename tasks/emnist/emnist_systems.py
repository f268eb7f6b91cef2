# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""EMNIST in five systems: plans and processes of the library.

In all but DP-FTRL nobody is trusted with what a writer sends, and in ISRL-DP a
writer is a silo, which protects every single one of its characters.
"""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any

from tff_dp import check_ins
from tff_dp import dp_ftrl
from tff_dp import silos
from tff_dp.mechanisms import randomizers
from tff_dp.systems import draw_and_discard
from tff_dp.systems.check_ins import plan as check_in_plan
from tff_dp.systems.check_ins import shuffled
from tff_dp.systems.check_ins import windows
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import plan as instances_plan
from tff_dp.systems.silos import silo_budget
from tff_dp.systems.silos import silo_sampling

# pylint: disable=g-bad-import-order
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

# Of a report, before the plan is calibrated.
_ANY_EPSILON = 1.0


@dataclasses.dataclass(frozen=True)
class Model:
  """A Keras network as TFF wants it.

  Attributes:
    build: Function that builds the network, always the same one.
    loss: Loss, a mean over a batch.
    input_spec: Types of a batch.
  """

  build: Callable[[], tf.keras.Model]
  loss: tf.keras.losses.Loss
  input_spec: Any

  def variables(self) -> tff.learning.models.VariableModel:
    """Returns the network with variables. This method is a `model_fn`."""
    return tff.learning.models.from_keras_model(
        self.build(), loss=self.loss, input_spec=self.input_spec
    )

  def function(self) -> tff.learning.models.FunctionalModel:
    """Returns the network as a function of its weights."""
    return tff.learning.models.functional_model_from_keras(
        self.build(), self.loss, self.input_spec
    )


def build(settings, plan, model: Model, num_examples: Mapping[str, int]):
  """Returns (process, further arguments of `program.train`).

  Args:
    settings: `emnist.Settings`, the result of `federated_settings.filled`.
    plan: Plan of DP-FTRL, `None` in other systems.
    model: The network.
    num_examples: Writer -> number of characters.
  """
  return _BUILDERS[settings.system](settings, plan, model, num_examples)


def _dp_ftrl(settings, plan, model, num_examples):
  plan.participation.validate_population(
      len(num_examples), settings.clients_per_round
  )
  process = dp_ftrl.build_dp_ftrl(
      model.variables,
      plan,
      client_optimizer=_local(settings),
      server_learning_rate=settings.server_learning_rate,
      momentum=settings.momentum,
      insecure_seed=settings.insecure_seed,
  )
  return process, {'schedule_seed': settings.seed}


def _check_in_sgd(settings, model, protocol, builder):
  """Returns the process of writers who randomize what they send."""
  plan = check_in_plan.CheckInPlan(
      protocol, randomizers.Sphere(_ANY_EPSILON, settings.l2_norm_clip)
  ).calibrated(epsilon=settings.epsilon, delta=settings.delta)
  process = builder(
      model.variables,
      plan,
      client_optimizer=_local(settings),
      server_learning_rate=settings.server_learning_rate,
      momentum=settings.momentum,
  )
  return process, {}


def _averaged(settings, plan, model, num_examples):
  del plan
  protocol = windows.AveragedCheckIn(settings.total_rounds, len(num_examples))
  return _check_in_sgd(settings, model, protocol, check_ins.build_check_in_sgd)


def _shuffled(settings, plan, model, num_examples):
  del plan
  protocol = shuffled.ShuffledCheckIn(
      settings.total_rounds,
      min(1.0, settings.clients_per_round / len(num_examples)),
      len(num_examples),
  )
  return _check_in_sgd(
      settings, model, protocol, check_ins.build_shuffled_check_in_sgd
  )


def _isrl(settings, plan, model, num_examples):
  del plan
  process = silos.build_noisy_mb_sgd(
      model.function(),
      silos={
          writer: silo_budget.SiloBudget(
              number, settings.epsilon, settings.delta
          )
          for writer, number in num_examples.items()
      },
      num_rounds=settings.total_rounds,
      sampling={
          writer: silo_sampling.PoissonSampling(
              min(settings.client_batch_size, number)
          )
          for writer, number in num_examples.items()
      },
      l2_norm_clip=settings.l2_norm_clip,
      learning_rate=settings.server_learning_rate,
      averaging='last_8',
  )
  writers = np.array(list(num_examples))
  reached = [
      set(
          np.random.default_rng([settings.seed, number]).choice(
              writers,
              min(settings.clients_per_round, len(writers)),
              replace=False,
          )
      )
      for number in range(settings.total_rounds)
  ]
  plan = process.plan.with_availability(
      lambda number, writer: writer in reached[number - 1]
  )
  return process, {'plan': plan}


def _draw_and_discard(settings, plan, model, num_examples):
  del plan
  reports = settings.total_rounds * settings.clients_per_round
  plan = instances_plan.DrawAndDiscardPlan(
      step=client_steps.ClientStep(
          learning_rate=settings.client_learning_rate,
          clip='l2',
          clip_norm=settings.l2_norm_clip,
          mechanism='gaussian',
          epsilon=_ANY_EPSILON,
          delta=settings.delta,
      ),
      num_params=model.build().count_params(),
      num_instances=settings.instances,
      max_participations=-(-reports // len(num_examples)),
      num_rounds=settings.total_rounds,
      clients_per_round=settings.clients_per_round,
  ).calibrated(epsilon=settings.epsilon, delta=settings.delta)
  process = draw_and_discard.build_draw_and_discard(
      model.variables, plan, client_keys=True
  )
  return process, {'schedule_seed': settings.seed}


def _local(settings) -> tff.learning.optimizers.Optimizer:
  return tff.learning.optimizers.build_sgdm(settings.client_learning_rate)


_BUILDERS = {
    'dp-ftrl': _dp_ftrl,
    'check-ins': _averaged,
    'shuffled-check-in': _shuffled,
    'isrl': _isrl,
    'draw-and-discard': _draw_and_discard,
}
