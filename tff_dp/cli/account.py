# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""`tff-dp account`: what a run costs."""

import argparse

from tff_dp.cli import dp_ftrl
from tff_dp.cli import errors

_EXAMPLES = """examples:
  StackOverflow of arXiv:2103.00039, each client once in 1600 rounds:
    tff-dp account dp-ftrl --mechanism honaker --rounds 1600 \\
        --noise-multiplier 1.13 --delta 1e-6
  Gboard (cf. arXiv:2305.18465), up to 6 times, 313 rounds strictly between:
    tff-dp account dp-ftrl --mechanism tree --rounds 2000 \\
        --max-participations 6 --min-index-gap 314 \\
        --noise-multiplier 7 --delta 1e-10
"""


def add_parser(subparsers) -> None:
  """Adds the command to `argparse` subparsers."""
  parser = subparsers.add_parser(
      'account', help='epsilon of a run, from its parameters'
  )
  kinds = parser.add_subparsers(dest='kind', required=True, metavar='KIND')
  dp_ftrl_parser = kinds.add_parser(
      'dp-ftrl',
      help='correlated or independent noise on a stream of sums',
      description=(
          'Prints epsilon of a whole run with every model released. No\n'
          'amplification by sampling or shuffling is claimed.'
      ),
      epilog=_EXAMPLES,
  )
  dp_ftrl_parser.add_argument(
      '--rounds', type=int, required=True, help='rounds of the whole run'
  )
  dp_ftrl_parser.add_argument(
      '--noise-multiplier',
      type=float,
      required=True,
      help='standard deviation of one draw on the SUM, over the clip norm',
  )
  dp_ftrl.add_arguments(dp_ftrl_parser)
  dp_ftrl_parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
  """Prints the guarantee."""
  result = dp_ftrl.guarantee(
      arguments, arguments.rounds, arguments.noise_multiplier
  )
  dp_ftrl.show(result, arguments.format)
  return errors.DONE
