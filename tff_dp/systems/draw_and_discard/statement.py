# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The contents of the statement that are specific to a `DrawAndDiscardPlan`."""

from typing import Any

from tff_dp import draws
from tff_dp.accounting import rounding
from tff_dp.ledger import participation_ledger
from tff_dp.statement import builder
from tff_dp.statement import plain_words
from tff_dp.systems.draw_and_discard import accounting

_CLIPS = {'box': 'every weight', 'l1': 'L1 norm', 'l2': 'L2 norm'}
_SENTENCES = """
setting.model: local differential privacy: clients add the noise
setting.adversary: the server, and whoever reads the channel: every model that a
    client is sent and that it returns, who takes part when, which instance it
    draws, and all instances at all times
unit.contribution_bound: a report of a client is computed from its whole data
    set, and its mean gradient is clipped ({clip} at most
    {plan.step.clip_norm:g}), whatever its number of examples
unit.participation: at most {most} of a client, at most one in a round
release.covered: every report, hence every instance, the mean of them after
    every round, its evaluation on data of others than the clients in training,
    and counts and spread that are computed from reports
release.not_covered: that a client takes part, when and how often, which is
    public. {metrics}. {not_covered}
mechanism.name: draw and discard, noise of clients: {law}
mechanism.client_step: instance - learning rate * clipped mean gradient + noise,
    the whole model
mechanism.noise_scale: {scale:.6g} on every weight as sent: Laplace's b, or the
    Gaussian's standard deviation
accounting.method: composition of all reports of one client, each a noise
    mechanism on its clipped step
accounting.theorem: Laplace: the L1 distance of neighbours over the scale;
    Gaussian: Balle and Wang, arXiv:1805.06530, theorem 8; composition:
    arXiv:2106.08567, theorem 10
accounting.exactness: exact for Gaussian noise, and for Laplace noise where pure
    epsilons are added; else an upper bound with every weight at its bound.
    Grids err upward
implementation.coins: simulated: the keys of all clients, from which draws and
    noise follow, come from one root key; devices would have their own. The
    server's coins protect nothing
implementation.dropouts: a client that was selected has taken part, come what
    may
implementation.bad_updates: a gradient that is not finite counts as zero; a
    report that is not finite, or that the spam filter refuses, is counted,
    never stored
not_claimed.limits: nothing is claimed for several clients of one person, or for
    side channels such as the time of a report; floating-point noise is not
    exactly Laplace or Gaussian (Mironov, 2012); other runs on the same clients
    are releases of their own and add up
"""


def points(plan, about: builder.Occasion) -> dict[str, Any]:
  """Returns 'point.name' -> value, see `builder.build`.

  Args:
    plan: A `DrawAndDiscardPlan`.
    about: Occasion of the statement.
  """
  step, num_params = plan.step, plan.num_params
  said = builder.sentences(
      _SENTENCES,
      plan=plan,
      clip=_CLIPS[step.clip],
      most=accounting.times(plan.max_participations),
      metrics=builder.METRICS_OF_CLIENTS,
      not_covered=about.declarations.not_covered,
      law=step.mechanism or f'none ({plain_words.NO_PRIVACY})',
      scale=step.noise_scale(num_params),
  )
  added = 'none: Gaussian noise has no epsilon without a delta'
  if step.mechanism != 'gaussian':
    reports = plan.participations_after(about.num_rounds)
    epsilon = step.model_epsilon(num_params) * reports
    added = {
        'epsilon': about.number(epsilon),
        'delta': draws.missing_delta(epsilon),
    }
  is_known = isinstance(about.observed, participation_ledger.Observed)
  if about.rounds_done and is_known and not about.insecure_seed:
    most = about.observed.max_participations
    cost = plan.epsilon(
        delta=about.delta, num_rounds=about.rounds_done, participations=most
    )
    said['implementation.realised_participation'] = (
        f'{about.observed.num_clients} clients took part, none more than'
        f' {accounting.times(most)}, which is epsilon'
        f' {rounding.rounded_up(cost)}: informational, the guarantee is that of the cap'
    )
  return said | {
      'unit.max_participations': plan.max_participations,
      'mechanism.parameters': builder.readable(step.describe()),
      'mechanism.num_params': num_params,
      'mechanism.server': builder.readable({
          'strategy': plan.strategy,
          'num_instances': plan.num_instances,
          'server_batch': plan.server_batch,
          'spam_filter': plan.spam_filter and plan.spam_filter.rule,
          'steps of the mean model in a round': f'{plan.steps_per_round:.4g}',
          'part of the guarantee': 'no',
      }),
      'mechanism.clients_per_round': plan.clients_per_round,
      'guarantee.epsilon_of_one_report': about.number(
          plan.epsilon(delta=about.delta, participations=1)
      ),
      'guarantee.added_reports': added,
      'amplification.assumptions': {
          'draw': 'not assumed to be secret',
          'discard': 'not assumed to happen',
          'number of instances': 'not used',
      },
      'not_claimed.heuristics': _of_one_weight(plan, about),
  }


def _of_one_weight(plan, about: builder.Occasion) -> list[dict[str, Any]] | str:
  """Returns an entry about the epsilon of one weight, or 'none'.

  This epsilon does not guarantee anything to a client. The result is 'none' if
  clients add no noise, or if the noise follows from a known seed.
  """
  if not plan.step.is_private or about.insecure_seed:
    return 'none'
  epsilon = plan.step.coordinate_epsilon(plan.num_params)
  return [{
      'about': f'one weight of one report ({accounting.FEATURE_LEVEL})',
      'epsilon': rounding.to_json_number(epsilon),
      'delta': plan.step.delta or 0.0,
      'no guarantee, because': 'a client moves all weights at once.',
  }]
