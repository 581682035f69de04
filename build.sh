#!/usr/bin/env bash
# The project's one command: ./build.sh run | test | sim [FILE.asc …] | check-cann | bench | docs | clean
set -euo pipefail
cd "$(dirname "$0")"
export OMP_WAIT_POLICY=PASSIVE  # libgomp's spin barriers cost up to 1000x on 2 cores; must be set before Python starts
export HYBRID_OPS_CACHE="${HYBRID_OPS_CACHE:-$PWD/build/cache}"
venv=${HYBRID_OPS_VENV:-.venv}

fail() { echo "build.sh: $*" >&2; exit 1; }

usage() {
    cat <<'TEXT'
usage: ./build.sh VERB
  run         set everything up, then: Qwen3.5 decode step with our kernel in the simulator, exported, checked, executed
  test        what CI runs: format, types, contract, tests
  sim         build the simulator and every operator for every SoC ahead of time; with FILE.asc …: run those samples
  check-cann  compile every kernel and host source against real CANN headers (ASCEND_HOME_PATH)
  bench       print a benchmark table: bench [NAME of a file in benchmarks/, rgdr by default]
  docs        regenerate the generated pages and the README tables
  clean       remove build/ and the virtual environment
TEXT
}

# setup [EXTRA …]: the virtual environment with the package and its extras; nothing to do when they are there
setup() {
    command -v g++ >/dev/null || fail "g++: not found; the simulator compiles kernels with it; allowed g++ 12 or newer (Debian: apt-get install g++)"
    local python=${PYTHON:-python3} extras=torch,onnx,models,dev stamp want
    [ $# -eq 0 ] || extras+=,$(IFS=,; echo "$*")
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        fail "python: $("$python" --version 2>&1 || echo "$python not found"); allowed Python 3.11 or newer (set PYTHON)"
    want=$(cat constraints.txt pyproject.toml | sha256sum | cut -c1-16)
    stamp=$venv/.ready-$want-$extras
    [ -e "$stamp" ] && return
    echo "[setup] virtual environment $venv with $extras (a few minutes)"
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
    # The package index's torch is the CUDA build, 3.5 GB more: the CPU one first, where pip is set up to find one.
    "$venv/bin/pip" install -q --disable-pip-version-check --no-deps "$(grep '^torch==' constraints.txt)+cpu" 2>/dev/null ||
        echo "[setup] no CPU build of torch within reach: the package index gives its own, which may be 3.5 GB larger"
    "$venv/bin/pip" install -q --disable-pip-version-check -c constraints.txt -e ".[$extras]"
    touch "$stamp"
}

py() { "$venv/bin/python" "$@"; }

verb=${1:-}
[ $# -gt 0 ] && shift
case $verb in
    run)
        setup
        py -m hybrid_ops build
        py -m hybrid_ops run --out build/run "$@"
        ;;
    test)
        setup mindspore
        py -m ruff format --check .
        py -m ruff check .
        git ls-files '*.h' '*.cpp' | xargs "$venv/bin/clang-format" --dry-run --Werror
        py -m mypy
        py -m mypy --config-file /dev/null --ignore-missing-imports export
        py -m hybrid_ops build
        py -m hybrid_ops docs --check
        py -m pytest -n 2 "$@"
        ;;
    sim)
        setup
        if [ $# -gt 0 ]; then
            py -m hybrid_ops sim "$@"
        else
            py -m hybrid_ops build
        fi
        ;;
    check-cann)
        setup
        py -m hybrid_ops check-cann "$@"
        ;;
    bench)
        setup
        py -m hybrid_ops build
        table=rgdr
        if [ -f "benchmarks/${1:-}.py" ]; then
            table=$1
            shift
        fi
        py "benchmarks/$table.py" "$@"
        ;;
    docs)
        setup
        py -m hybrid_ops docs "$@"
        ;;
    clean)
        rm -rf build "$venv" ./*.egg-info python/*.egg-info
        find . -name __pycache__ -prune -exec rm -rf {} +
        ;;
    -h | --help | help) usage ;;
    *)
        usage >&2
        [ -z "$verb" ] || fail "verb: got '$verb'; allowed run, test, sim, check-cann, bench, docs, clean"
        exit 2
        ;;
esac
