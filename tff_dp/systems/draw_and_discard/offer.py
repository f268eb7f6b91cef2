# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The offer of draw and discard for a setting, as `advise` compares it."""

import math

from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.advice import offers
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import plan as plan_lib

# Number of instances in arXiv:1807.04369. It is not part of the guarantee.
_INSTANCES = 20
# Learning rate of draw and discard. The guarantee does not depend on it.
_LEARNING_RATE = 0.001


def draw_and_discard(setting: offers.Setting) -> offers.Offer:
  """Returns the `offers.Offer` of draw and discard with Gaussian noise.

  The error of the offer is sqrt(k / B) s, for k instances, B reports in a round
  and noise of std s in a report, in clip norms. It is the noise of the mean
  model, divided by the distance that this model moves in a round. The error of
  the mean of B reports would be s / sqrt(B).

  The mean of k instances moves by 1/k of a step with every update. Each
  instance is a chain of updates back to the first model, and gets one of k
  updates. So after R updates, an instance has noise of variance R s^2 / k.
  Averaging instances only removes the noise by which they differ.

  Heuristic: this holds for clients one after the other and steps that do not
  depend on the model, up to terms that do not grow with R.
  """
  reports = setting.num_passes
  # Gaussian noise composes to a Gaussian, of this sigma for each report.
  sigma = gaussian.sigma_for(epsilon=setting.epsilon, delta=setting.delta)
  one = gaussian.exact_epsilon(
      sigma=sigma * math.sqrt(reports), delta=setting.delta
  )
  if offers.shortened(one) > one:
    one *= 1 - 1e-5
  one = offers.shortened(one)
  plan = plan_lib.DrawAndDiscardPlan(
      step=client_steps.ClientStep(
          learning_rate=_LEARNING_RATE,
          clip='l2',
          mechanism='gaussian',
          epsilon=one,
          delta=setting.delta,
      ),
      num_params=setting.parameters,
      num_instances=_INSTANCES,
      max_participations=reports,
      num_rounds=reports,
  )
  per_report = plan.step.noise_scale(plan.num_params) / _LEARNING_RATE
  epsilon = plan.epsilon(delta=setting.delta)
  return offers.offer(
      setting,
      per_report * math.sqrt(_INSTANCES / setting.reports_per_round),
      system='draw-and-discard',
      variant='gaussian',
      trust='nobody: every model that is sent is private by itself',
      neighboring_relation=run_events.NeighboringRelation.REPLACE_ONE.value,
      noise={'epsilon_of_one_participation': one},
      epsilon=epsilon,
      epsilon_no_amplification=epsilon,
      model_copies=_INSTANCES,
      participation=(
          f'each client takes part at most {reports} times, one client at a'
          ' time'
      ),
      notes=(
          f'{_INSTANCES} instances at the server learn like batches of so many'
          ' clients, but do not average their noise: fewer instances have less'
          ' error. The error is a heuristic, as if steps did not depend on the'
          ' model.',
      ),
      assumptions=plan.assumptions(delta=setting.delta),
      process='tff_dp.draw_and_discard.build_draw_and_discard',
      command=offers.account(
          'draw-and-discard', '--parameters', setting.parameters,
          '--mechanism', 'gaussian', '--clip', 'l2', '--epsilon', one,
          '--max-participations', reports, '--instances', _INSTANCES,
          '--delta', setting.delta,
      ),
      python=f"""\
import tff_dp
step = tff_dp.draw_and_discard.ClientStep(
    learning_rate={_LEARNING_RATE}, clip='l2', mechanism='gaussian',
    epsilon={one!r}, delta={setting.delta!r})
plan = tff_dp.DrawAndDiscardPlan(step=step, num_params={setting.parameters},
    num_instances={_INSTANCES}, max_participations={reports},
    num_rounds={reports})
print(plan.epsilon(delta={setting.delta!r}))""",
  )
