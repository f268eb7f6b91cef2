#!/usr/bin/env bash
# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
#
#   tools/make_environment.sh                 # .venv, the reference stack
#   tools/make_environment.sh current         # .venv-current, the current one
#   tools/make_environment.sh colab           # .venv-colab, that of Colab
#   tools/make_environment.sh flower          # .venv-flower, without TFF
#   tools/make_environment.sh nvflare         # .venv-nvflare, without TFF
#   tools/make_environment.sh cluster         # .venv-cluster, with Ray and Dask
#   tools/make_environment.sh docs            # .venv-docs, with Sphinx
#   tools/make_environment.sh current --find  # only prints its Python, if any
#
# Makes a folder with Python and everything in the lock, or does nothing, within
# milliseconds, if it is there and up to date. With uv where that is installed,
# else with pip, which borrows uv for the time. PYTHON names another Python than
# the first one found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Per stack: the folder, the lock, the Pythons from the best one down.
case "${1:-reference}" in
  reference) venv=.venv lock=requirements.lock versions=(3.11) ;;
  current)
    venv=.venv-current lock=requirements.current.lock versions=(3.13 3.12)
    ;;
  colab) venv=.venv-colab lock=requirements.colab.lock versions=(3.13) ;;
  docs) venv=.venv-docs lock=requirements.docs.lock versions=(3.13) ;;
  flower | nvflare | cluster)
    venv=.venv-$1 lock=requirements.$1.lock versions=(3.11)
    ;;
  *)
    echo "error: no stack is called $1; there are: reference," \
      'current, colab, flower, nvflare, cluster, docs' >&2
    exit 2
    ;;
esac
stamp="${venv}/tff_dp_environment"
# What the environment is made from. It is up to date if the stamp, which is
# written last, holds the hash of exactly this, so half an installation is not.
inputs=("${lock}" requirements.uv.lock setup.py pyproject.toml
        tools/make_environment.sh)
# The lock is complete: nothing may be added to it, whatever packages ask for.
locked=(--no-deps --require-hashes --requirement "${lock}")
editable=(--no-deps --no-build-isolation --editable .)
# What most commands and tests import.
imports='tff_dp.cli.main, matplotlib.pyplot, pytest'
if [[ ! "${venv}" =~ flower|nvflare ]]; then
  imports+=', tff_dp.program, tff_dp.export, tff_dp.learning'
fi

say() { echo "$*" >&2; }

fail() {
  say "error: $1"
  say "why: $2"
  say "try: $3"
  exit 3
}

wanted() { cat "${inputs[@]}" | sha256sum | cut -d ' ' -f 1; }

up_to_date() {
  [[ -x "${venv}/bin/python" && -f "${stamp}" \
      && "$(<"${stamp}")" == "$(wanted)" ]]
}

check_platform() {
  if [[ "$(uname -s) $(uname -m)" != 'Linux x86_64' ]]; then
    fail "$(uname -s) on $(uname -m) is not supported" \
      'TensorFlow Federated is built for Linux on x86_64 only' \
      'WSL2 on Windows, a linux/amd64 container on macOS'
  fi
}

# is_python COMMAND VERSION
is_python() {
  "$1" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$2')" \
    >/dev/null 2>&1
}

# Prints version and command of the Python to use, or nothing. pyenv has some
# that are not in PATH.
find_python() {
  local version candidate
  for version in "${versions[@]}"; do
    for candidate in ${PYTHON:-} "python${version}" python3 python \
        "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/${version}".*/bin/python; do
      if is_python "${candidate}" "${version}"; then
        echo "${version} ${candidate}"
        return
      fi
    done
  done
}

# make_with_uv UV [FLAG...]
make_with_uv() {
  "$1" venv --quiet --allow-existing --python "${python:-${versions[0]}}" \
    "${venv}"
  install_with_uv "$@"
}

# install_with_uv UV [FLAG...]; with `&&`, so that it may be a condition.
install_with_uv() {
  local uv=("$1" pip install --quiet --python "${venv}/bin/python" "${@:2}")
  "${uv[@]}" "${locked[@]}" && "${uv[@]}" "${editable[@]}"
}

make_with_pip() {
  if ! "${python}" -m venv "${venv}" >/dev/null; then
    local package="python${version}-venv"
    fail "${python} cannot make a virtual environment" \
      'its venv or ensurepip module is missing' \
      "on Debian and Ubuntu: apt-get install ${package}; or install uv"
  fi
  # Twice quiet: errors only. TFF and tensorflow-privacy declare that they stop
  # before Python 3.12; on the current stack that is what tff_dp/_shim.py is
  # for. (uv never minds such an upper bound.)
  local pip=("${venv}/bin/python" -m pip install --quiet --quiet --no-input
             --ignore-requires-python --disable-pip-version-check
             --progress-bar off)
  # uv takes half of the time, so pip installs it first, and it is deleted
  # afterwards. It does not know pip's settings, such as a mirror.
  local borrowed="${venv}/borrowed"
  if "${pip[@]}" --target "${borrowed}" --require-hashes \
        --requirement requirements.uv.lock >/dev/null 2>&1 \
      && install_with_uv "${borrowed}/bin/uv" \
        --cache-dir "${borrowed}/cache" >/dev/null 2>&1; then
    rm -rf "${borrowed}"
    return
  fi
  rm -rf "${borrowed}"
  "${pip[@]}" --no-compile "${locked[@]}"
  "${pip[@]}" --no-compile "${editable[@]}"
}

# Importing TFF takes several times as long without bytecode, and where
# PYTHONDONTWRITEBYTECODE is set Python would never write it on its own. Half of
# the modules in the environment are never imported, so compileall would take
# three times as long.
write_bytecode() {
  local output
  if ! output="$(env -u PYTHONDONTWRITEBYTECODE "${venv}/bin/python" \
      -c "import ${imports}" 2>&1)"; then
    say "${output}"
    fail "${venv} was made, but an import fails" 'the error is above' \
      "rm -r ${venv}, and the same command again"
  fi
}

make_environment() {
  read -r version python <<< "$(find_python)"
  local tool=pip
  if command -v uv >/dev/null; then
    tool=uv
  elif [[ -z "${python}" ]]; then
    local names="Python ${versions[0]}${versions[1]:+ or ${versions[1]}}"
    fail "neither uv nor ${names} was found" \
      'TensorFlow Federated 0.87 is tested on Python 3.11, 3.12 and 3.13 only' \
      "install uv, or ${names} with venv, or name one: PYTHON=/path/to/it"
  fi
  if [[ -e "${venv}" && ! -e "${stamp}" ]]; then
    fail "${venv} exists, but was not made by this project" \
      'it would have to be deleted' \
      "move it away, or delete it yourself: rm -r ${venv}"
  fi
  say "Making ${venv} with ${tool} and $(grep -c '==' "${lock}")" \
    'packages (up to 3 GB); this may take some minutes.'
  # From here on it is ours, and unfinished. What an older lock has installed
  # must not stay, so it is made anew.
  rm -rf "${venv}"
  mkdir "${venv}"
  echo unfinished > "${stamp}"
  "make_with_${tool}" "${tool}"
  write_bytecode
  wanted > "${stamp}"
  say "Made ${venv} in ${SECONDS} s."
}

if [[ "${2:-}" == --find ]]; then
  find_python | cut -d ' ' -f 2-
  exit 0
fi
if up_to_date; then
  exit 0
fi
check_platform
# Another `make` may be at it: wait for it, then look again.
exec 9> "${venv}.lock"
flock 9
if ! up_to_date; then
  make_environment
fi
