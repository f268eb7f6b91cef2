# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small regression data set, and datasets of clients."""

import collections

import numpy as np
from sklearn import datasets
import tensorflow as tf


def load():
  """Returns scikit-learn's diabetes data, scaled by public constants.

  Ten features and a column of ones; 442 rows with norms up to 2.
  """
  data = datasets.load_diabetes()
  # Features have norms of about 0.2; labels run from 25 to 346.
  x = np.column_stack([4.0 * data.data, np.ones(len(data.target))])
  return x.astype(np.float32), (data.target / 175.0 - 1.0).astype(np.float32)


def dataset(x, y, batch=2):
  return tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
          x=np.asarray(x, np.float32), y=np.asarray(y, np.float32)
      )
  ).batch(batch)
