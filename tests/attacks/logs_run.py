# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A run with a client whose label does not fit, told how loud to be.

  python -m tests.attacks.logs_run DIRECTORY CONTEXT [tensorflow] [words...]

With 'tensorflow', TensorFlow is imported before `tff_dp`.
"""

import contextlib
import sys

# In the label of the bad client, as text anywhere it is a leak.
LABEL = 8417
BAD = 'client 3'


def main() -> int:
  directory, kind, *words = sys.argv[1:]
  # pylint: disable=g-import-not-at-top
  if 'tensorflow' in words:
    words.remove('tensorflow')
    import tensorflow as tf
  from tests.program import real_run
  import tensorflow as tf
  from tff_dp import execution
  from tff_dp.cli import errors

  class Clients(real_run.Clients):

    def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
      dataset = super().create_tf_dataset_for_client(client_id).unbatch()
      if client_id == BAD:
        dataset = dataset.map(lambda x, y: (x, tf.constant(LABEL)))
      return dataset.batch(3)

  real_run._CLIENTS = Clients()  # pylint: disable=protected-access

  def command(words):
    del words
    context = contextlib.nullcontext()
    if kind == 'native':
      context = execution.create_native_context(max_concurrent_clients=1)
    with context:
      real_run.run(directory, progress='plain')
    return 0

  return errors.run(command, words, stopped='stopped')


if __name__ == '__main__':
  sys.exit(main())
