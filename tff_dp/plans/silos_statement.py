# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a plan of silos, or the run that follows it, says of its privacy.

The same twelve points as for a schedule (`accounting.statement`), of the kind
'silos', and the events for whoever recomputes epsilon.
"""

import math
from typing import Any

from tff_dp.accounting import rounding
from tff_dp.accounting.silos import silo_guarantee
from tff_dp.plans import dp_ftrl_statement
from tff_dp.statement import statement
from tff_dp.statement import statement_facts
from tff_dp.statement import statement_sections

_CURVE_DELTAS = (1e-5, 1e-6, 1e-8)
_NO_PRIVACY = statement_sections.NO_PRIVACY
_AUDIT = statement_facts.StatementFacts.__dataclass_fields__['audit'].default
_SAMPLED = ('poisson', 'fixed')


def build(
    plan,
    *,
    delta: float,
    rounds_done: int,
    insecure_seed: bool,
    declarations: dp_ftrl_statement.Declarations,
) -> statement.PrivacyStatement:
  """Returns the statement of a plan, or of the run that followed it so far.

  Args:
    plan: A `SiloPlan`.
    delta: In (0, 1), of the headline.
    rounds_done: Rounds that have begun; 0 states the plan.
    insecure_seed: Whether keys follow from a known seed.
    declarations: What the plan cannot know.
  """
  rounds = rounds_done or plan.num_rounds
  is_sampled = any(p.sampling.name in _SAMPLED for p in plan.phases)
  points = {
      'setting': {
          'model': (
              'inter-silo record-level differential privacy (ISRL-DP): every'
              ' silo clips and noises inside of it what it sends'
          ),
          'trusted': 'for the records of a silo, that silo alone',
          'adversary': (
              'the server and all other silos together: everybody who sees all'
              ' that a silo sends in all rounds'
          ),
      },
      'unit': {
          'unit': plan.unit,
          'contribution_bound': (
              'the gradient of a record has L2 norm at most'
              f' {plan.l2_norm_clip:g}, over all weights together'
          ),
          'participation': '; '.join(
              dict.fromkeys(p.sampling.describe() for p in plan.phases)
          ),
          'max_participations': max(
              phase.sampling.num_releases(phase.num_rounds)
              for phase in plan.phases
          ),
      },
      'adjacency': {
          'relation': plan.neighboring_relation.value,
          'definition': silo_guarantee.ASSUMPTIONS[0],
      },
      'release': {
          'covered': (
              'every message of every silo, and so the models, their evaluation'
              ' on data outside of the silos, private metrics, and who was'
              ' there in a round'
          ),
          'not_covered': declarations.not_covered,
      },
      'mechanism': {
          'name': 'Gaussian noise of every silo on its mean gradient',
          'parameters': {
              'releases_per_round': plan.releases_per_round,
              'private_metrics': len(plan.metric_bounds),
          },
          'noise_multiplier': (
              f'{plan.noise_multiplier:.7g}, the least of all silos: standard'
              ' deviation of its noise on the SUM over a batch, over the L2'
              ' clip norm'
          ),
          'l2_norm_clip': plan.l2_norm_clip,
          'rounds_planned': plan.num_rounds,
          'rounds_done': rounds_done,
          'population': ', '.join(
              f'{name}: {silo.num_records} records'
              for name, silo in plan.silos.items()
          ),
      },
      'accounting': {
          'method': (
              'each silo alone: what its messages cost the record that pays'
              ' most; rounds compose adaptively, disjoint blocks and phases'
              ' cost their maximum'
          ),
          'theorem': (
              'arXiv:2106.09779; the pair of Poisson sampling and the convexity'
              ' bound of fixed size: propositions 1 and 2 of'
              ' docs/isrl_accounting.md'
          ),
          'exactness': (
              'exact for one pass; else an upper bound, whose grids and tails'
              ' err upward'
          ),
          'discretisation': (
              'privacy loss distributions connect the dots, losses are rounded'
              ' up, and what is cut off is added to delta'
          ),
          'versions': statement_sections.versions(),
      },
      'guarantee': _guarantee(
          plan, delta, rounds, rounds_done, insecure_seed, declarations
      ),
      'amplification': {
          'claimed': (
              'sampling of records, in secret, inside of each silo'
              if is_sampled
              else 'none'
          ),
          'assumptions': (
              [silo_guarantee.ASSUMPTIONS[3]] if is_sampled else 'none'
          ),
          'epsilon_without': rounding.to_json_number(
              math.inf
              if insecure_seed
              else plan.epsilon_no_amplification(delta=delta, num_rounds=rounds)
          ),
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
      'implementation': {
          'arithmetic': (
              'floating-point noise in float64, not a secure discrete sampler;'
              ' the sum of data and noise is rounded to float32'
          ),
          'generator': 'Philox counter streams, which are not cryptographic',
          'coins': (
              'simulated: samples and noise of all silos follow from one root'
              ' key; in the field each silo has its own, and keeps it'
          ),
          'key': (
              'made from a known seed: void'
              if insecure_seed
              else '128 bits of operating-system entropy, in the checkpoints'
          ),
          'dropouts': (
              'a silo that is absent sends nothing and pays nothing; whether it'
              ' is does not depend on its data'
          ),
          'realised_participation': _participation(plan, rounds_done),
          'bad_updates': (
              'a gradient that is not finite counts as zero, in the silo; how'
              ' many is not released'
          ),
      },
      'not_claimed': {
          'audit': _AUDIT,
          'heuristics': 'none',
          'limits': (
              'nothing is claimed for side channels such as the time of a'
              ' round, or against a silo for its own records; other runs on the'
              ' same records are releases of their own and add up'
          ),
      },
  }
  return statement.PrivacyStatement(
      points, _warnings(plan, delta, insecure_seed), statement.SILOS
  )


def events_json(plan, *, delta: float, num_rounds: int) -> dict[str, Any]:
  """Returns what epsilon of a run can be recomputed from, as JSON types.

  Args:
    plan: A `SiloPlan`.
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
          'type': 'silos',
          'rounds': num_rounds,
          'messages': {
              name: int(plan.messages(name, num_rounds=num_rounds).size)
              for name in plan.silos
          },
      }],
  }
  if plan.voids:
    described['warnings'] = list(_warnings(plan, delta, False))
  return described


def _guarantee(
    plan, delta, rounds, rounds_done, insecure_seed, declarations
) -> dict[str, Any]:
  def number(epsilon):
    return rounding.to_json_number(math.inf if insecure_seed else epsilon)

  spent = {
      name: plan.epsilon(silo=name, num_rounds=rounds) for name in plan.silos
  }
  at_delta = {
      name: plan.epsilon(silo=name, delta=delta, num_rounds=rounds)
      for name in plan.silos
  }
  current = max(at_delta.values())
  person = silo_guarantee.IsrlGuarantee({
      name: silo_guarantee.SiloFacts(
          spent[name], silo.delta, silo.num_records, 0, ''
      )
      for name, silo in plan.silos.items()
  }).per_person({name: 1 for name in plan.silos})
  if insecure_seed:
    person = math.inf, 1.0
  return {
      'epsilon': number(current),
      'epsilon_planned': number(plan.epsilon(delta=delta)),
      'delta': delta,
      'delta_reason': (
          f'{declarations.delta_reason}; it should be well below one over the'
          ' records of a silo'
      ),
      'epsilon_replace_one': number(current),
      'worst_silo': max(at_delta, key=at_delta.get),
      'silos': [
          {
              'silo': name,
              'epsilon': number(spent[name]),
              'delta': silo.delta,
              'budget': 'none' if silo.epsilon is None else silo.epsilon,
              'records': silo.num_records,
              'messages': int(
                  plan.messages(name, num_rounds=rounds_done or None).size
              ),
          }
          for name, silo in plan.silos.items()
      ],
      'per_person': (
          'with a record in every silo, epsilon'
          f' {rounding.rounded_up(person[0])} at delta'
          f' {rounding.rounded_up(person[1])}: silos add up; with'
          ' k records in one silo, k epsilon at k exp((k-1) epsilon) delta'
      ),
      'curve': [
          {
              'delta': each,
              'epsilon': number(plan.epsilon(delta=each, num_rounds=rounds)),
              'epsilon_planned': number(plan.epsilon(delta=each)),
          }
          for each in sorted({*_CURVE_DELTAS, delta}, reverse=True)
      ],
  }


def _participation(plan, rounds_done: int) -> str:
  if not rounds_done:
    return 'no round yet'
  counts = {name: 0 for name in plan.silos}
  for round_index in range(1, rounds_done + 1):
    for name in plan.present(round_index):
      counts[name] += 1
  listed = ', '.join(f'{name} in {count}' for name, count in counts.items())
  return f'of {rounds_done} rounds: {listed}'


def _warnings(plan, delta: float, insecure_seed: bool) -> tuple[str, ...]:
  found = [f'{_NO_PRIVACY}: {reason}.' for reason in plan.voids]
  if insecure_seed:
    found.append(
        f'{_NO_PRIVACY}: samples and noise follow from a known seed, so that'
        ' they can be recomputed.'
    )
  if not plan.voids and plan.epsilon(delta=delta) == math.inf:
    found.append(f'{_NO_PRIVACY}: no finite epsilon holds at delta {delta:g}.')
  weak = [
      name
      for name, silo in plan.silos.items()
      if delta * silo.num_records >= 1
  ]
  if weak:
    found.append(
        f'WEAK: delta {delta:g} is not below one over the records of'
        f' {", ".join(weak)}; revealing one random record completely would be'
        ' allowed.'
    )
  return tuple(found)
