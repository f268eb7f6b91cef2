# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds the distribution tff-dp.

tensorflow-federated is deliberately not among the requirements: its own pins
(jaxlib 0.4.14) cannot be installed any more, the overrides that work around
them do not travel in a wheel, and on a Python that it does not support pip
falls back to TFF 0.1.0 without a word. requirements.lock and, for Python 3.12
and 3.13, requirements.current.lock hold the tested sets; `tff_dp` says at
import what is missing.
"""

import pathlib
import re

import setuptools

_ROOT = pathlib.Path(__file__).parent
_VERSION = re.search(
    r"^__version__ = '(.+)'$",
    (_ROOT / 'tff_dp' / '_version.py').read_text(),
    flags=re.MULTILINE,
).group(1)

# What TensorFlow needs besides the driver to use a GPU, whose speed is not
# measured yet. For 2.14.1 these are the pins of its own extra, `and-cuda`,
# without tensorrt 8.5.3.1, which does not exist for Python 3.11.
_CUDA = [
    f'nvidia-{name}-cu11=={version}; python_version < "3.12"'
    for name, version in (
        ('cublas', '11.11.3.6'),
        ('cuda-cupti', '11.8.87'),
        ('cuda-nvcc', '11.8.89'),
        ('cuda-runtime', '11.8.89'),
        ('cudnn', '8.7.0.84'),
        ('cufft', '10.9.0.58'),
        ('curand', '10.3.0.86'),
        ('cusolver', '11.4.1.48'),
        ('cusparse', '11.7.5.86'),
        ('nccl', '2.16.5'),
    )
] + ['tensorflow[and-cuda]==2.21.0; python_version >= "3.12"']

setuptools.setup(
    name='tff-dp',
    version=_VERSION,
    description=(
        'Differentially private federated learning for TensorFlow Federated,'
        ' with its guarantee stated'
    ),
    long_description=(_ROOT / 'README.md').read_text(),
    long_description_content_type='text/markdown',
    author='The tff_dp Authors',
    license='Apache-2.0',
    classifiers=[
        'Intended Audience :: Science/Research',
        'License :: OSI Approved :: Apache Software License',
        'Operating System :: POSIX :: Linux',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Programming Language :: Python :: 3.13',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
    ],
    packages=setuptools.find_packages(include=['tff_dp', 'tff_dp.*']),
    python_requires='>=3.11',
    # A subset of what a working TFF environment has.
    install_requires=[
        'absl-py',
        'dp-accounting>=0.4.3',
        'matplotlib',
        'numpy',
        'scipy',
        'tqdm',
    ],
    # Flower and NVFlare have environments of their own: their pins and those of
    # TensorFlow Federated exclude each other. Ray and Dask go beside it, see
    # requirements.cluster.lock.
    extras_require={
        'cuda': _CUDA,
        'dask': ['distributed==2026.8.0'],
        'flower': ['flwr==1.41.0'],
        'nvflare': ['nvflare==2.9.0'],
        'ray': [
            'ray==2.52.1; python_version < "3.12"',
            'ray>=2.60,<2.61; python_version >= "3.12"',
        ],
    },
    entry_points={'console_scripts': ['tff-dp = tff_dp.cli.main:main']},
)
