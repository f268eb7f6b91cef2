# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a protocol plan, or the run that follows it, says of its privacy.

The same twelve points as for a schedule (`statement.statement`), of the kind
'protocol', and the events for whoever recomputes epsilon.
"""

import math
from typing import Any, Optional

from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.participation import monitoring
from tff_dp.plans import dp_ftrl_statement
from tff_dp.statement import statement
from tff_dp.statement import statement_facts
from tff_dp.statement import statement_sections

_CURVE_DELTAS = (1e-5, 1e-6, 1e-8)
_NO_PRIVACY = statement_sections.NO_PRIVACY
_AUDIT = statement_facts.StatementFacts.__dataclass_fields__['audit'].default


def build(
    plan,
    *,
    delta: float,
    observed: Optional[monitoring.ObservedCheckIns],
    insecure_seed: bool,
    declarations: dp_ftrl_statement.Declarations,
) -> statement.PrivacyStatement:
  """Returns the statement of a plan, or of the run that followed it so far.

  Args:
    plan: A `ProtocolPlan`.
    delta: In (0, 1).
    observed: What is known of the run, `None` before round 1.
    insecure_seed: Whether coins or noise follow from a known seed.
    declarations: What the plan cannot know.
  """
  rounds_done = observed.num_rounds if observed is not None else 0
  rounds = plan.rounds_accounted(rounds_done or plan.num_rounds)
  certificate = plan.certificate(delta=delta, num_rounds=rounds)
  protocol = plan.protocol
  points = {
      'setting': {
          'model': (
              'local noise; what the protocol adds to it is under amplification'
              if plan.is_local
              else 'central differential privacy, with check-ins'
          ),
          'trusted': protocol.trust,
          'adversary': protocol.adversary,
      },
      'unit': {
          'unit': 'client',
          'contribution_bound': _contribution_bound(plan),
          'participation': protocol.participation,
          'max_participations': protocol.max_reports * plan.num_passes,
      },
      'adjacency': {
          'relation': plan.neighboring_relation.value,
          'definition': plan.neighboring_relation.description,
      },
      'release': {
          'covered': _covered(plan),
          'not_covered': (
              'metrics that clients compute without noise, if any: they are'
              f' never in release/. {declarations.not_covered}'
          ),
      },
      'mechanism': _mechanism(plan, rounds_done, declarations),
      'accounting': _accounting(plan, certificate, rounds),
      'guarantee': _guarantee(
          plan, delta, rounds_done, insecure_seed, declarations
      ),
      'amplification': {
          'claimed': (
              'none'
              if certificate.bound == 'none'
              else f'{protocol.name}, bound {certificate.bound}'
          ),
          'assumptions': [*certificate.assumptions, *protocol.assumptions]
          or 'none',
          'epsilon_without': rounding.to_json_number(
              certificate.epsilon_no_amplification
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
      'implementation': _implementation(plan, observed, insecure_seed),
      'not_claimed': {
          'audit': _AUDIT,
          'heuristics': 'none',
          'limits': (
              'nothing is claimed for several clients of one person, for side'
              ' channels such as the time of a round, or against those who are'
              ' trusted above'
          ),
      },
  }
  return statement.PrivacyStatement(
      points,
      _warnings(
          plan, delta, certificate, observed, insecure_seed, declarations
      ),
      statement.PROTOCOL,
  )


def events_json(plan, *, delta: float, num_rounds: int) -> dict[str, Any]:
  """Returns what epsilon of a run can be recomputed from, as JSON types.

  Args:
    plan: A `ProtocolPlan`.
    delta: In (0, 1).
    num_rounds: Rounds after which the run stopped.
  """
  return {
      'schema': 'tff_dp.events',
      'schema_version': 1,
      'unit': 'client',
      'neighboring_relation': plan.neighboring_relation.value,
      'delta': delta,
      'plan': plan.describe(),
      'events': [{
          'type': 'protocol',
          'rounds': num_rounds,
          'rounds_accounted': plan.rounds_accounted(num_rounds),
      }],
  }


def _contribution_bound(plan) -> str:
  clip = plan.l2_norm_clip
  norm = 'L2'
  if clip is None:
    clip = getattr(plan.randomizer, 'l1_norm_clip', None)
    norm = 'L1'
  bound = 'one of the categories'
  if clip is not None:
    bound = (
        f'one vector of {norm} norm at most {clip:g}, whatever its number of'
        ' examples'
    )
  return f'a report of a client is {bound}'


def _covered(plan) -> str:
  text = (
      'the model after every step, its evaluation on data outside the training'
      ' population, and metrics computed from randomized values'
  )
  if not plan.protocol.occupancy_is_secret:
    return text + ', and the number of reports of every step'
  if plan.occupancy_noise_stddev is not None:
    return text + ', and noised numbers of check-ins of every step'
  return text + '; nothing about who or how many checked in when'


def _mechanism(plan, rounds_done: int, declarations) -> dict[str, Any]:
  protocol, described = plan.protocol, plan.protocol.describe()
  del described['name']
  section = {
      'name': protocol.name,
      'parameters': described,
      'randomizer': plan.randomizer.describe(),
      'local_guarantee': _local_guarantee(plan),
      'check_in_rate': _check_in_rate(protocol),
      'passes': plan.num_passes,
      'rounds_planned': plan.num_rounds,
      'rounds_done': rounds_done,
      'population': (
          'a lower bound is needed: min_num_clients'
          if protocol.needs_population
          else 'not stated; nothing here depends on it'
      ),
  }
  if declarations.population is not None:
    section['population'] = (
        f'{declarations.population} clients, {declarations.population_origin}'
    )
  if plan.occupancy_noise_stddev is not None:
    section['occupancy_noise_stddev'] = plan.occupancy_noise_stddev
  return section


def _local_guarantee(plan) -> str:
  if not plan.is_local:
    return 'none: clients send their updates to the trusted server as they are'
  epsilon = plan.randomizer.local_epsilon
  if epsilon < math.inf:
    return f'epsilon0 = {epsilon:g}, delta0 = 0, of one report for replace-one'
  return (
      'of one report for replace-one: that of Gaussian noise of'
      f' {plan.noise_multiplier:g} clip norms on a difference of two clip'
      ' norms; the accounting uses its whole privacy profile, or the best pair'
      ' (epsilon0, delta0) of it'
  )


def _check_in_rate(protocol) -> str:
  rate = getattr(protocol, 'check_in_rate', None)
  name = 'g'
  if rate is None:
    rate = getattr(protocol, 'check_in_probability', 1.0)
    name = 'p0'
  known = getattr(protocol, 'certified_rate', rate)
  text = f'{name} = {known:g}, the probability of the coin that clients flip'
  if known != rate:
    text += (
        f' ({rate:g}) less a share of {protocol.dropout_rate:g} that is lost'
        ' independently of everything: assumed'
    )
  return text


def _accounting(plan, certificate, rounds: int) -> dict[str, Any]:
  winner = [c for c in certificate.candidates if c.bound == certificate.bound]
  section = {
      'method': (
          'the least of several upper bounds, each sound by itself; rounds'
          ' compose adaptively'
      ),
      'bound': certificate.bound,
      'theorem': winner[0].source if winner else certificate.bound,
      'candidates': [
          {
              'bound': candidate.bound,
              'epsilon': rounding.to_json_number(candidate.epsilon),
              'source': candidate.source,
              'reason': candidate.reason or 'applies',
          }
          for candidate in certificate.candidates
      ],
      'derived_bounds': (
          'allowed: proofs in docs/proofs_shuffling.md and'
          ' docs/proofs_check_ins.md'
          if plan.use_derived
          else 'not used'
      ),
      'exactness': 'an upper bound; every tail, grid and search errs upward',
      'discretisation': (
          'privacy loss distributions are pessimistic (connect the dots), and'
          ' what a grid leaves out counts as infinite loss'
      ),
      'rounds_accounted': (
          f'{rounds}: a run that stops earlier counts as one that stops there'
      ),
      'versions': statement_sections.versions(),
  }
  if plan.occupancy_noise_stddev is not None:
    section['noised_counts'] = (
        'two hops over counts without the client [derived], see'
        ' tff_dp.accounting.amplification.noised_counts; candidates are those'
        ' of the models at the delta that the counts leave them'
    )
  return section


def _guarantee(
    plan, delta, rounds_done, insecure_seed, declarations
) -> dict[str, Any]:
  def number(epsilon):
    return rounding.to_json_number(math.inf if insecure_seed else epsilon)

  planned = plan.epsilon(delta=delta)
  current = planned
  if rounds_done:
    current = plan.epsilon_after(rounds_done, delta=delta)
  replaced = current
  if plan.neighboring_relation != run_events.NeighboringRelation.REPLACE_ONE:
    replaced = plan.epsilon(
        delta=delta,
        num_rounds=plan.rounds_accounted(rounds_done or plan.num_rounds),
        neighboring_relation=run_events.NeighboringRelation.REPLACE_ONE,
    )
  section = {
      'epsilon': number(current),
      'epsilon_planned': number(planned),
      'delta': delta,
      'delta_reason': statement_sections.delta_reason(
          declarations.delta_reason, delta, declarations.population
      ),
      'epsilon_replace_one': number(replaced),
      'curve': [
          {'delta': each, 'epsilon_planned': number(plan.epsilon(delta=each))}
          for each in sorted({*_CURVE_DELTAS, delta}, reverse=True)
      ],
  }
  shares = plan.counted(
      delta=delta,
      num_rounds=plan.rounds_accounted(rounds_done or plan.num_rounds),
  )
  if shares is not None:
    section['shares'] = {
        'epsilon_of_models': number(shares.protocol_epsilon),
        'delta_of_models': shares.protocol_delta,
        'epsilon_of_noised_counts': number(2 * shares.count_epsilon),
        'delta_of_noised_counts': shares.count_delta,
    }
  if insecure_seed:
    section['epsilon_if_key_were_secret'] = rounding.to_json_number(planned)
  return section


def _implementation(plan, observed, insecure_seed: bool) -> dict[str, Any]:
  return {
      'arithmetic': 'floating-point noise, not a secure discrete sampler',
      'generator': 'Philox counter streams, which are not cryptographic',
      'coins': (
          'simulated: those of all clients follow from one root key (BLAKE2b;'
          ' counts and permutations of the fast sampler from PCG64, which is'
          ' not cryptographic); devices would flip them independently'
      ),
      'key': (
          'made from a known seed: void'
          if insecure_seed
          else '128 bits of operating-system entropy, in the checkpoints'
      ),
      'dropouts': (
          'a report that is lost or late is discarded, never moved to another'
          ' step; what replaces a lost winner does not depend on data'
      ),
      'realised_participation': (
          'no round yet' if observed is None else observed.sentence
      ),
      'bad_updates': (
          'a non-finite update counts as zero; how many is not released'
      ),
  }


def _warnings(
    plan, delta, certificate, observed, insecure_seed, declarations
) -> tuple[str, ...]:
  found = []
  if insecure_seed:
    found.append(
        f'{_NO_PRIVACY}: coins or noise follow from a known seed, so that the'
        ' noise can be subtracted and who took part is known.'
    )
  if certificate.epsilon == math.inf:
    found.append(
        f'{_NO_PRIVACY}: no finite epsilon holds at delta {delta:g}.'
    )
  elif certificate.bound == 'none' and plan.bound != 'none':
    found.append(
        'NO AMPLIFICATION: no bound applies and is below the guarantee without'
        ' amplification, which is stated instead; the candidates say why.'
    )
  if observed is not None and observed.warning:
    found.append(observed.warning)
  found += statement_sections.weak_delta(delta, declarations.population)
  return tuple(found)
