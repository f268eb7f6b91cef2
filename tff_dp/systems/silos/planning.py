# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""From silos, their budgets and options to terms of every silo and a process.

A silo's data is `process.client_data(name, examples)`. All builders share these
arguments:

*   `model`: a `tff.learning.models.FunctionalModel` of trainable float32
  weights, without layers that depend on the batch.
*   `silos`: name -> `SiloBudget`. Each silo is calibrated alone, for its own
  records, batch and budget. With weights p_i (of all silos or of none) the
  objective is the sum of p_i F_i.
*   `sampling`: one scheme for all silos, or name -> scheme of one kind.
*   `l2_norm_clip`: clip norm C of the gradient of every record.
*   `constraint`: set in which the model has to stay.
*   `regularization`: lambda of lambda/2 |w - w_0|^2, added at the server.
*   `noise_stddev`: sigma of all silos, or name -> sigma, in the place of the
  calibrated one. The guarantee then follows from this noise, and is void for 0.
*   `published_proofs`: calibrate only with bounds that have a published proof.
*   `label_range`: smallest and largest label. If a record has another label,
  its gradient and its metrics count as zero, silently: an error would tell
  everybody that there is such a record.
*   `private_metrics`: metrics that are released with noise, and take a share of
  the silo's budget.
*   `allow_unprotected_metrics`: whether to release the training loss and the
  number of records without noise, under `not_covered`. Voids the guarantee.
*   `model_aggregator`: an `UnweightedAggregationFactory` that computes the mean
  of the silos' messages, such as one with secure aggregation.
*   `insecure_seed`: seed for tests only. Voids the guarantee.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import functools
from typing import Optional, Union

import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.aggregators import release_marks
from tff_dp.learning import constraints
from tff_dp.learning import local_training
from tff_dp.learning import process as learning_process
from tff_dp.systems.silos import client_work
from tff_dp.systems.silos import gradients
from tff_dp.systems.silos import metrics as metrics_lib
from tff_dp.systems.silos import plan as silo_plan
from tff_dp.systems.silos import process as process_lib
from tff_dp.systems.silos import server
from tff_dp.systems.silos import silo_budget
from tff_dp.systems.silos import silo_calibration
from tff_dp.systems.silos import silo_sampling
from tff_dp.systems.silos import silo_terms as terms_lib

Silos = Mapping[str, silo_budget.SiloBudget]
Samplings = Union[
    silo_sampling.Sampling, Mapping[str, silo_sampling.Sampling]
]
NoiseStddev = Union[None, float, Mapping[str, float]]
# Tolerance of the sum of the weights, which users round.
_TOLERANCE = 1e-6
# Computed once for equal silos.
_calibrate_noise = functools.lru_cache(maxsize=1024)(
    silo_calibration.calibrate_noise
)


@functools.partial(_calls.helpful, name='the builder')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """The `**options` of the builders, see the module docstring."""

  noise_stddev: NoiseStddev = None
  published_proofs: bool = False
  label_range: gradients.LabelRange = None
  private_metrics: Sequence[metrics_lib.PrivateMetric] = ()
  allow_unprotected_metrics: bool = False
  model_aggregator: Optional[tff.aggregators.UnweightedAggregationFactory] = (
      None
  )
  insecure_seed: Optional[int] = None

  def __post_init__(self):
    _checks.optional_integer_at_least(0, insecure_seed=self.insecure_seed)
    gradients.check_label_range(self.label_range)


def equal_blocks(
    silos: Silos, num_rounds: int
) -> dict[str, silo_sampling.DisjointBlocks]:
  """Returns the sampling of one pass over the records in R rounds, by silo.

  A block is floor(n_i / R) of the n_i records of silo i.

  Args:
    silos: Budgets by name, see the module docstring.
    num_rounds: Number of rounds R.

  Raises:
    ArgumentError: If `num_rounds` is not an integer of at least 1, if a silo
      has fewer records than rounds, or if `check_silos` fails.
  """
  check_silos(silos)
  _checks.integer_at_least(1, num_rounds=num_rounds)
  for name, silo in silos.items():
    if silo.num_records < num_rounds:
      raise _checks.ArgumentError(
          'num_rounds',
          num_rounds,
          f'at most {silo.num_records}, the records of silo {name!r}: in one'
          ' pass every round uses other records',
      )
  return {
      name: silo_sampling.DisjointBlocks(silo.num_records // num_rounds)
      for name, silo in silos.items()
  }


def check_silos(silos: Silos) -> None:
  """Raises `ArgumentError` unless silos and weights are complete.

  There must be a silo, and no name twice ('a' and b'a' are one name). Either no
  silo has a weight, or all have weights that add up to 1.
  """
  if not silos:
    raise _checks.ArgumentError('silos', silos, 'at least one silo')
  if not isinstance(silos, Mapping) or not all(
      isinstance(silo, silo_budget.SiloBudget) for silo in silos.values()
  ):
    raise _checks.ArgumentError(
        'silos',
        silos,
        'a dict from the name of each silo to its silos.SiloBudget(num_records,'
        ' epsilon=...)',
    )
  _checks.distinct_clients(silos=silos)
  weights = [silo.weight for silo in silos.values()]
  given = [weight for weight in weights if weight is not None]
  if given and (
      len(given) < len(weights) or not abs(sum(given) - 1.0) <= _TOLERANCE
  ):
    raise _checks.ArgumentError(
        'weight', weights, 'no weights, or one for each silo, with the sum 1'
    )


def one_phase_terms(
    silos: Silos,
    sampling: Samplings,
    num_rounds: int,
    l2_norm_clip: float,
    options: Options,
) -> dict[str, terms_lib.SiloTerms]:
  """Returns the terms of each silo, by name, for a run of one phase.

  The phase has all rounds, and all records of the silo.

  Args:
    silos: Budgets by name, see the module docstring.
    sampling: One scheme for all silos, or name -> scheme, see the module
      docstring.
    num_rounds: Number of noised releases of every silo.
    l2_norm_clip: Clip norm, see the module docstring.
    options: Options from the user.
  """
  check_silos(silos)
  _checks.integer_at_least(1, num_rounds=num_rounds)
  for argument, choice in (
      ('sampling', sampling), ('noise_stddev', options.noise_stddev)
  ):
    if isinstance(choice, Mapping) and set(choice) != set(silos):
      raise _checks.ArgumentError(
          argument, sorted(choice), f'the names of the silos, {sorted(silos)}'
      )
  return {
      name: silo_terms(
          name,
          silos,
          [(_of(sampling, name), 0, silo.num_records, num_rounds)],
          l2_norm_clip,
          options,
      )
      for name, silo in silos.items()
  }


def silo_terms(
    name: str,
    silos: Silos,
    phases: Iterable[tuple[silo_sampling.Sampling, int, int, int]],
    l2_norm_clip: float,
    options: Options,
) -> terms_lib.SiloTerms:
  """Returns the terms of one silo, with the noise for its budget.

  Args:
    name: Name of the silo.
    silos: Budgets by name, see the module docstring.
    phases: Tuples (sampling, first record, number of records, rounds), one for
      each phase.
    l2_norm_clip: Clip norm, see the module docstring.
    options: Options from the user.
  """
  silo = silos[name]
  _checks.clip_norm(l2_norm_clip=l2_norm_clip)
  built, metric_stddevs = [], []
  for sampling, first_record, num_records, num_rounds in phases:
    if not isinstance(sampling, silo_sampling.Sampling):
      raise _checks.ArgumentError(
          'sampling',
          sampling,
          'PoissonSampling(expected_batch), FixedSize(batch) or'
          ' DisjointBlocks(batch)',
      )
    try:
      sampling.check(num_records=num_records, num_rounds=num_rounds)
    except _checks.ArgumentError as error:
      raise error.renamed(f'{error.argument} of silo {name!r}') from error
    noise_stddev = _of(options.noise_stddev, name)
    if noise_stddev is None:
      if silo.epsilon is None:
        raise _checks.ArgumentError(
            f'epsilon of silo {name!r}',
            None,
            'a budget, from which the noise follows',
            way_out='noise_stddev=..., on the mean over a batch: a noise'
            ' multiplier times l2_norm_clip over the batch size',
        )
      noise_stddev = _calibrate_noise(
          sampling,
          num_records=num_records,
          num_rounds=num_rounds,
          l2_norm_clip=l2_norm_clip,
          epsilon=silo.epsilon,
          delta=silo.delta,
          published_proofs=options.published_proofs,
      )
    gradient_stddev, stddevs = metrics_lib.split_noise(
        noise_stddev,
        l2_norm_clip=l2_norm_clip,
        metrics=options.private_metrics,
    )
    built.append(
        terms_lib.Phase(
            sampling=sampling,
            first_record=first_record,
            num_records=num_records,
            num_rounds=num_rounds,
            noise_stddev=gradient_stddev,
            accounted_stddev=noise_stddev,
        )
    )
    metric_stddevs.append(stddevs)
  return terms_lib.SiloTerms(
      num_records=silo.num_records,
      l2_norm_clip=float(l2_norm_clip),
      phases=tuple(built),
      scale=1.0 if silo.weight is None else silo.weight * len(silos),
      metric_stddevs=tuple(metric_stddevs),
  )


def compose(
    model: tff.learning.models.FunctionalModel,
    silos: Silos,
    terms: Mapping[str, terms_lib.SiloTerms],
    options: Options,
    *,
    constraint: constraints.Constraint,
    build_finalizer: Callable[
        [tff.Type], tff.learning.templates.FinalizerProcess
    ],
    result: Optional[process_lib.Result],
    build_work: Optional[
        Callable[
            [tff.Type, release_marks.Release],
            tff.learning.templates.ClientWorkProcess,
        ]
    ] = None,
    releases_per_round: int = 1,
) -> process_lib.SiloProcess:
  """Returns the process of silos with given terms.

  Args:
    model: Model, see the module docstring.
    silos: Budgets by name, see the module docstring.
    terms: Mapping from name to terms.
    options: Options from the user.
    constraint: Set that holds the initial model.
    build_finalizer: Function from the type of the model's weights to the
      server's side.
    result: Result of the algorithm, see `SiloProcess`.
    build_work: Function that returns the client work, given the type of the
      weights and the release that marks the noise. `None` means minibatch work.
    releases_per_round: Number of noised releases of a silo in a round.
  """
  gradients.num_params(model)  # Refuses models with state.
  if not isinstance(constraint, constraints.Constraint):
    raise _checks.ArgumentError(
        'constraint', constraint, 'a Constraint or None'
    )
  initial_weights = local_training.build_initial_weights(model, constraint)
  weights_type = initial_weights.type_signature.result
  plan = silo_plan.SiloPlan(
      silos,
      terms,
      releases_per_round=releases_per_round,
      published_proofs=options.published_proofs,
      metric_bounds=tuple(
          float(metric.upper_bound) for metric in options.private_metrics
      ),
      voids=tuple(_voids(terms, options)),
  )
  release = release_marks.Release.of(plan.release_facts)
  if build_work is None:
    work = client_work.build_minibatch_work(
        model,
        weights_type,
        plan.phases,
        l2_norm_clip=plan.l2_norm_clip,
        private_metrics=options.private_metrics,
        allow_unprotected_metrics=options.allow_unprotected_metrics,
        label_range=options.label_range,
        release=release,
    )
  else:
    work = build_work(weights_type, release)
  process = learning_process.of_parts(
      server.ReportedMeanFactory(options.model_aggregator),
      initial_weights,
      work,
      build_finalizer(weights_type),
  )
  return process_lib.SiloProcess(
      process, plan=plan, result=result, insecure_seed=options.insecure_seed
  )


def _of(choice, name: str):
  """Returns the choice for one silo, from a mapping or a common choice."""
  return choice[name] if isinstance(choice, Mapping) else choice


def _voids(terms, options: Options) -> list[str]:
  """Returns the reasons why a run would have no guarantee."""
  reasons = []
  if options.allow_unprotected_metrics:
    reasons.append(
        'silos release training metrics without noise'
        ' (allow_unprotected_metrics)'
    )
  if options.insecure_seed is not None:
    reasons.append('the noise follows from a seed (insecure_seed)')
  without_noise = [
      name
      for name, silo in terms.items()
      if any(phase.noise_stddev == 0 for phase in silo.phases)
  ]
  if without_noise:
    reasons.append(f'silos {without_noise} add no noise (noise_stddev=0)')
  return reasons
