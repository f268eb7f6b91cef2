# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a plan of draw and discard, or its run, says of its privacy.

The same twelve points as for the other plans (`accounting.statement`), and the
events for whoever recomputes epsilon.
"""

import math
from typing import Any, Optional

from tff_dp.accounting import draw_and_discard
from tff_dp.accounting import draw_and_discard_statement as words
from tff_dp.accounting import rounding
from tff_dp.ledger import participation_ledger as ledger_lib
from tff_dp.plans import dp_ftrl_statement as plan_statement
from tff_dp.statement import statement
from tff_dp.statement import statement_facts
from tff_dp.statement import statement_sections

_CURVE_DELTAS = (1e-5, 1e-6, 1e-8)
_NO_PRIVACY = statement_sections.NO_PRIVACY
_AUDIT = statement_facts.StatementFacts.__dataclass_fields__['audit'].default
EVENT = 'draw_and_discard'


def build(
    plan,
    *,
    delta: float,
    observed: Optional[ledger_lib.Observed],
    insecure_seed: bool,
    declarations: plan_statement.Declarations,
) -> statement.PrivacyStatement:
  """Returns the statement of a plan, or of the run that followed it so far.

  Args:
    plan: A `DrawAndDiscardPlan`.
    delta: In (0, 1).
    observed: What the participation ledger saw, `None` before round 1.
    insecure_seed: Whether the clients' noise follows from a known seed.
    declarations: What the plan cannot know.
  """
  rounds_done = observed.num_rounds if observed is not None else 0
  relation = plan.neighboring_relation
  guarantee = _guarantee(plan, delta, rounds_done, insecure_seed, declarations)
  points = {
      'setting': {
          'model': 'local differential privacy: clients add the noise',
          'trusted': plan.trust,
          'adversary': (
              'the server, and whoever reads the channel: every model that a'
              ' client is sent and that it returns, who takes part when, which'
              ' instance it draws, and all instances at all times'
          ),
      },
      'unit': {
          'unit': plan.unit,
          'contribution_bound': (
              'a report of a client is computed from its whole data set, and'
              f' its mean gradient is clipped ({_clip(plan.step)}), whatever'
              ' its number of examples'
          ),
          'participation': (
              f'at most {_times(plan.max_participations)} of a client, at most'
              ' one in a round'
          ),
          'max_participations': plan.max_participations,
      },
      'adjacency': {
          'relation': relation.value,
          'definition': relation.description,
      },
      'release': {
          'covered': (
              'every report, hence every instance, the mean of them after every'
              ' round, its evaluation on data outside the training population,'
              ' and counts and spread that are computed from reports'
          ),
          'not_covered': (
              'that a client takes part, when and how often, which is public.'
              f' {declarations.not_covered}'
          ),
      },
      'mechanism': _mechanism(plan, rounds_done, declarations),
      'accounting': {
          'method': (
              'composition of all reports of one client, each a noise mechanism'
              ' on its clipped step'
          ),
          'theorem': (
              'Laplace: the L1 distance of neighbours over the scale; Gaussian:'
              ' Balle and Wang, arXiv:1805.06530, theorem 8; composition:'
              ' arXiv:2106.08567, theorem 10'
          ),
          'exactness': (
              'exact for Gaussian noise, and for Laplace noise where pure'
              ' epsilons are added; else an upper bound with every weight at'
              ' its bound. Grids err upward'
          ),
          'versions': statement_sections.versions(),
      },
      'guarantee': guarantee,
      'amplification': {
          'claimed': 'none',
          'assumptions': {
              'draw': 'not assumed to be secret',
              'discard': 'not assumed to happen',
              'number of instances': 'not used',
          },
          'epsilon_without': guarantee['epsilon'],
      },
      'tuning': {
          'hyperparameters': declarations.hyperparameters,
          'architecture': declarations.architecture,
          'early_stopping': declarations.early_stopping,
      },
      'public_data': {
          'pretraining': declarations.pretraining,
          'public_data': declarations.public_data,
          'preprocessing': declarations.preprocessing,
      },
      'implementation': _implementation(plan, delta, observed, insecure_seed),
      'not_claimed': {
          'audit': _AUDIT,
          'heuristics': _diagnostics(plan, delta),
          'limits': (
              'nothing is claimed for several clients of one person, or for'
              ' side channels such as the time of a report; floating-point'
              ' noise is not exactly Laplace or Gaussian (Mironov, 2012)'
          ),
      },
  }
  warnings = []
  if not plan.step.is_private:
    warnings.append(f'{_NO_PRIVACY}: the clients add no noise.')
  if insecure_seed:
    warnings.append(
        f"{_NO_PRIVACY}: the clients' noise follows from a known seed, so that"
        ' it can be subtracted.'
    )
  warnings += statement_sections.weak_delta(delta, declarations.population)
  return statement.PrivacyStatement(
      points, tuple(warnings), statement.DRAW_AND_DISCARD
  )


def events_json(plan, *, delta: float, num_rounds: int) -> dict[str, Any]:
  """Returns what epsilon of a run can be recomputed from, as JSON types.

  Args:
    plan: A `DrawAndDiscardPlan`.
    delta: In (0, 1).
    num_rounds: Rounds after which the run stopped.
  """
  described = {
      'schema': 'tff_dp.events',
      'schema_version': 1,
      'unit': plan.unit,
      'neighboring_relation': plan.neighboring_relation.value,
      'delta': delta,
      'plan': plan.describe(),
      'events': [{
          'type': EVENT,
          'rounds': num_rounds,
          'participations': plan.participations_after(num_rounds),
      }],
  }
  if not plan.step.is_private:
    described['warnings'] = [f'{_NO_PRIVACY}: the clients add no noise.']
  return described


def _clip(step) -> str:
  kinds = {'box': 'every weight', 'l1': 'L1 norm', 'l2': 'L2 norm'}
  return f'{kinds[step.clip]} at most {step.clip_norm:g}'


def _times(count: int) -> str:
  return '1 participation' if count == 1 else f'{count} participations'


def _mechanism(plan, rounds_done: int, declarations) -> dict[str, Any]:
  population = 'not stated; nothing here depends on it'
  if declarations.population is not None:
    population = (
        f'{declarations.population} clients, {declarations.population_origin}'
    )
  law = plan.step.mechanism or f'none ({_NO_PRIVACY})'
  return {
      'name': f'draw and discard, noise of clients: {law}',
      'parameters': _readable(plan.step.describe()),
      'client_step': (
          'instance - learning rate * clipped mean gradient + noise, the whole'
          ' model'
      ),
      'noise_scale': (
          f'{plan.step.noise_scale(plan.num_params):.6g} on every weight as'
          " sent: Laplace's b, or the Gaussian's standard deviation"
      ),
      'num_params': plan.num_params,
      'server': _readable({
          'strategy': plan.strategy,
          'num_instances': plan.num_instances,
          'server_batch': plan.server_batch,
          'spam_filter': plan.spam_filter and plan.spam_filter.rule,
          'part of the guarantee': 'no',
      }),
      'clients_per_round': plan.clients_per_round,
      'rounds_planned': plan.num_rounds,
      'rounds_done': rounds_done,
      'population': population,
  }


def _readable(described: dict[str, Any]) -> dict[str, Any]:
  return {
      name: 'none' if value is None else value
      for name, value in described.items()
  }


def _guarantee(
    plan, delta, rounds_done, insecure_seed, declarations
) -> dict[str, Any]:
  def number(epsilon):
    return rounding.to_json_number(math.inf if insecure_seed else epsilon)

  planned = plan.epsilon(delta=delta)
  current = plan.epsilon(delta=delta, num_rounds=rounds_done or None)
  pure = plan.step.model_epsilon(plan.num_params)
  section = {
      'epsilon': number(current),
      'epsilon_planned': number(planned),
      'delta': delta,
      'delta_reason': statement_sections.delta_reason(
          declarations.delta_reason, delta, declarations.population
      ),
      'epsilon_replace_one': number(current),
      'epsilon_of_one_report': number(
          plan.epsilon(delta=delta, participations=1)
      ),
      'epsilon_pure': (
          'none: Gaussian noise has none'
          if plan.step.mechanism == 'gaussian'
          else number(pure * plan.participations_after(rounds_done or None))
      ),
      'curve': [
          {'delta': each, 'epsilon_planned': number(plan.epsilon(delta=each))}
          for each in sorted({*_CURVE_DELTAS, delta}, reverse=True)
      ],
  }
  if insecure_seed:
    section['epsilon_if_key_were_secret'] = rounding.to_json_number(planned)
  return section


def _implementation(
    plan, delta: float, observed, insecure_seed: bool
) -> dict[str, Any]:
  realised = 'no round yet'
  if observed is not None and observed.num_rounds:
    most = observed.max_participations
    cost = rounding.rounded_up(
        plan.epsilon(
            delta=delta, num_rounds=observed.num_rounds, participations=most
        )
    )
    realised = (
        f'{observed.num_clients} clients took part, none more than'
        f' {_times(most)}, which is epsilon {cost}: informational, the'
        ' guarantee is that of the cap'
    )
  return {
      'arithmetic': 'floating-point noise, not a secure discrete sampler',
      'generator': 'Philox counter streams, which are not cryptographic',
      'coins': (
          'simulated: the keys of all clients, from which draws and noise'
          ' follow, come from one root key; devices would have their own. The'
          " server's coins protect nothing"
      ),
      'key': (
          'made from a known seed: void'
          if insecure_seed
          else '128 bits of operating-system entropy, in the checkpoints'
      ),
      'dropouts': 'a client that was selected has taken part, come what may',
      'realised_participation': realised,
      'bad_updates': (
          'a gradient that is not finite counts as zero; a report that is not'
          ' finite, or that the spam filter refuses, is counted, never stored'
      ),
  }


def _diagnostics(plan, delta: float) -> Any:
  """Returns what weaker observers may learn, which is no guarantee."""
  found = draw_and_discard.diagnostics(
      plan.step,
      num_params=plan.num_params,
      num_instances=plan.num_instances,
      delta=delta,
      strategy=plan.strategy,
      has_spam_filter=plan.spam_filter is not None,
  )
  rows = [{
      'about': f'one weight of one report ({words.FEATURE_LEVEL})',
      'epsilon': rounding.to_json_number(
          plan.step.coordinate_epsilon(plan.num_params)
      ),
      'delta': plan.step.delta or 0.0,
      'no guarantee, because': 'a client moves all weights at once.',
  }]
  rows += [
      {
          'about': f'{one.name}, one {one.unit}',
          'epsilon': rounding.to_json_number(one.epsilon),
          'delta': one.delta or 0.0,
          'no guarantee, because': one.why_not,
      }
      for one in found
  ]
  return rows if plan.step.is_private else 'none'
