# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times a round of federated averaging against the same round written by hand.

    python -m benchmarks.round_time
    python -m benchmarks.round_time --pfl-python OTHER/bin/python
    python -m benchmarks.round_time --quick --rows in_process native_iterator
    python -m benchmarks.round_time --profile in_process/tree --models cnn_10

Every row trains the same network from the same weights on the same clients. The
result of its first round is compared with that of `one_by_one` before anything
is timed. After that all rows run round by round in turn, so that noise on the
machine hits them alike. The floor is the round written by hand that takes the
least CPU time. A ratio is the median, over repetitions, of the ratio of a row's
time to the floor's in the same repetition.

Rows:
  one_by_one       a `tf.function` that trains over arrays and adds up in place,
                   one client at a time; `one_by_one_2_threads`, two at a time
  graph_loop       one graph for a cohort whose data is one tensor: a
                   `tf.while_loop` over clients; `graph_xla`, the same compiled;
                   `graph_vectorized`, a `tf.vectorized_map`; `graph_jax`, a
                   compiled `lax.scan` of JAX. With `_clipped` at the end they
                   clip and add up exactly, and are never the floor. For small
                   networks only
  in_process       tff_dp's context, with LoopImplementation.DATASET_ITERATOR;
                   `in_process_default`, with the loop that TFF takes by default
  native_iterator  TFF's runtime, with the same loop
  native_default   TFF's runtime, with the loop that TFF takes by default
  pfl              pfl-research's simulated backend, in a process of its own

After the slash: `mean`; `tree`, the Honaker tree of DP-FTRL; `dp_aggregator`,
TFF's adaptive clipping and independent noise; `dp_ftrl`, `build_dp_ftrl` with
the plan of `tree` and a functional model. pfl's nearest to the first two are
`banded_matrix` and `gaussian`.

Models of small clients are called after their network, the number of clients
and the batches of 10 examples of each, as softmax_1000x2. CPU time is that of
all threads and of child processes.
"""

import argparse
import contextlib
import functools
import json
import os
import pathlib
import platform
import sys

import numpy as np

# Before TensorFlow, whose start-up messages it silences.
from tff_dp import _checks

# pylint: disable=g-bad-import-order,ungrouped-imports
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import round_pfl_row
from benchmarks import round_profile
from benchmarks import round_report
from benchmarks import round_rows
from benchmarks import round_tasks


def environment() -> dict[str, object]:
  """Returns versions, cores and threads: what absolute times depend on."""
  threading = tf.config.threading
  return {
      'python': platform.python_version(),
      'tensorflow': tf.__version__,
      'tensorflow_federated': tff.__version__,
      'numpy': np.__version__,
      'cores': len(os.sched_getaffinity(0)),
      # 0 leaves the choice to TensorFlow.
      'intra_op_threads': threading.get_intra_op_parallelism_threads(),
      'inter_op_threads': threading.get_inter_op_parallelism_threads(),
      'omp_num_threads': os.environ.get('OMP_NUM_THREADS'),
  }


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
      prog='python -m benchmarks.round_time',
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument(
      '--models',
      nargs='+',
      choices=list(round_tasks.TASKS),
      default=list(round_tasks.DEFAULT_TASKS),
      metavar='MODEL',
      help='of ' + ', '.join(round_tasks.TASKS) + ' (default: %(default)s)',
  )
  parser.add_argument(
      '--rows', nargs='+', metavar='ROW', help='these and the rounds by hand'
  )
  parser.add_argument(
      '--rounds',
      type=int,
      default=11,
      help='repetitions (default: %(default)s)',
  )
  parser.add_argument(
      '--quick', action='store_true', help='cnn_10 only, 3 repetitions'
  )
  parser.add_argument(
      '--workers',
      type=int,
      nargs='+',
      help='max_concurrent_clients of the in-process context, one row for each '
      '(default: its own choice)',
  )
  parser.add_argument(
      '--pfl-python',
      default=sys.executable,
      metavar='PATH',
      help='interpreter with pfl and torch (default: this one)',
  )
  parser.add_argument('--json', type=pathlib.Path, metavar='PATH')
  parser.add_argument(
      '--profile',
      metavar='ROW',
      help='say where the time of a row goes instead',
  )
  return parser


def _say(*words: str) -> None:
  print(*words, file=sys.stderr, flush=True)


def _rounds(arguments, results) -> None:
  for name in arguments.models:
    task = round_tasks.TASKS[name]
    with contextlib.ExitStack() as stack:
      rows, absent = round_rows.make_rows(
          task,
          stack,
          wanted=[arguments.profile] if arguments.profile else arguments.rows,
          workers=arguments.workers or (None,),
          pfl_python=arguments.pfl_python,
      )
      say = functools.partial(_say, name)
      round_rows.warm_up(task, rows, say)
      if arguments.profile:
        print(round_profile.profile(rows[-1].runner, arguments.rounds))
        continue
      round_rows.measure(rows, arguments.rounds, say)
      facts = {
          row.name: row.runner.facts
          for row in rows
          if isinstance(row.runner, round_pfl_row.PflRow)
      }
    result = {
        'clients': task.num_clients,
        'examples_per_client': task.num_examples,
        'batch_size': task.batch_size,
        'parameters': sum(w.size for w in task.initial_weights()),
        'repetitions': arguments.rounds,
        'rows': round_rows.summary(rows),
        'absent': absent,
        'pfl': facts,
    }
    result['targets'] = round_report.targets(result['rows'])
    results['models'][name] = result
    print(round_report.table(name, result), flush=True)


def main(argv=None) -> int:
  arguments = _parser().parse_args(argv)
  _checks.integer_at_least(1, rounds=arguments.rounds)
  if arguments.quick:
    arguments.models, arguments.rounds = ['cnn_10'], 3
  results = {'environment': environment(), 'models': {}}
  try:
    _rounds(arguments, results)
  except round_rows.DifferentResultError as error:
    _say(f'error: {error}')
    return 1
  finally:
    # What was measured before an error or Ctrl-C is not lost.
    if arguments.json:
      arguments.json.write_text(json.dumps(results, indent=2) + '\n')
  print(round_report.environment(results['environment']))
  return 0


if __name__ == '__main__':
  sys.exit(main())
