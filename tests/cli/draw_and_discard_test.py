# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for `tff-dp account draw-and-discard`."""

from absl.testing import absltest
from absl.testing import parameterized

from tests.cli import command
from tff_dp.accounting import draw_and_discard as accounting
from tff_dp.cli import draw_and_discard
from tff_dp.cli import errors
from tff_dp.mechanisms import client_steps

_MODEL = ('--parameters=33', '--instances=20', '--later-updates=1')


def _main(words):
  """Only this command, registered as `tff-dp` does."""
  parser = errors.Parser(prog='tff-dp')
  commands = parser.add_subparsers(required=True)
  kinds = commands.add_parser('account').add_subparsers(dest='kind')
  draw_and_discard.add_account_parser(kinds)
  try:
    arguments = parser.parse_args(errors.hyphenated(words))
    return arguments.run(arguments)
  except Exception as error:  # pylint: disable=broad-exception-caught
    return errors.report(error)


def _run(*argv):
  return command.run(_main, 'account', 'draw-and-discard', *argv)


def _json(*argv):
  return command.run_json(_main, 'account', 'draw-and-discard', *argv)


class AccountTest(parameterized.TestCase):

  def test_the_noise_of_the_paper(self):
    found = _json(
        '--parameters', 33, '--epsilon-per-coordinate', 3.47,
        '--participations', 1, '--instances', 20,
    )
    self.assertAlmostEqual(found['total_epsilon'], 33 * 3.47)
    self.assertEqual(found['total_delta'], 0)
    self.assertEqual(found['coordinate_epsilon'], 3.47)
    self.assertEqual(found['num_instances'], 20)
    self.assertIn('not a guarantee', found['coordinate_epsilon_is'])
    self.assertNotEmpty(found['non_dp_diagnostics'])

  def test_is_the_library(self):
    found = _json(
        *_MODEL, '--epsilon=2', '--delta=1e-6', '--mechanism=gaussian',
        '--clip=l2', '--clip-norm=0.5', '--learning-rate=0.01',
        '--participations=5', '--max-participations=6', '--concurrency=3',
    )
    step = client_steps.ClientStep(
        learning_rate=0.01, clip='l2', clip_norm=0.5, mechanism='gaussian',
        epsilon=2.0, delta=1e-6,
    )
    expected = accounting.guarantee(
        step, num_params=33, num_instances=20, participations=5, delta=1e-6,
        concurrency=3, max_participations=6, later_updates=(1,),
    )
    self.assertEqual(found['total_epsilon'], expected.total_epsilon)
    self.assertEqual(found['noise_scale'], step.noise_scale(33))

  def test_cap_counts_where_no_number_is_given(self):
    flags = (*_MODEL, '--epsilon=1', '--max-participations=6')
    found = _json(*flags)
    self.assertEqual(found['participations'], 6)
    self.assertEqual(found['total_epsilon'], 6.0)
    self.assertEqual(_json(*flags, '--participations=6'), found)

  def test_no_number_of_participations_is_assumed(self):
    code, _, err = _run(*_MODEL, '--epsilon=1')
    self.assertEqual(code, errors.USAGE)
    self.assertStartsWith(
        err, 'error: --participations is missing: expected a number, here or as'
        ' --max-participations'
    )

  def test_text(self):
    code, out, _ = _run(*_MODEL, '--epsilon-per-coordinate=0.1',
                        '--participations=4', '--delta=1e-6')
    self.assertEqual(code, 0)
    lines = out.splitlines()
    self.assertStartsWith(lines[0], 'epsilon ')
    self.assertIn('over 4 participations', lines[0])
    self.assertIn('non_dp_diagnostics (none of them is a guarantee)', lines)

  @parameterized.parameters(
      (('--epsilon=0',), '--epsilon'),
      (('--epsilon-per-coordinate=-1',), '--epsilon-per-coordinate'),
      (('--epsilon=1', '--mechanism=gaussian'), '--delta'),
      (('--epsilon=1', '--delta=2'), '--delta'),
      (('--epsilon=1', '--parameters=0'), '--parameters'),
      (('--epsilon=1', '--instances=0'), '--instances'),
      (('--epsilon=1', '--participations=-1'), '--participations'),
      (('--epsilon=1', '--epsilon-per-coordinate=1'), 'not allowed with'),
      ((), 'required'),
  )
  def test_bad_flags_are_named(self, flags, name):
    code, _, err = _run(*_MODEL, '--max-participations=9', *flags)
    self.assertEqual(code, errors.USAGE)
    self.assertIn(name, err)


if __name__ == '__main__':
  absltest.main()
