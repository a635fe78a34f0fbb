#!/usr/bin/env bash
# Fresh machine → environment → lint, types and all tests (the embedded real model among them).
#
# usage: bash scripts/test.sh [arguments of pytest]
. "$(dirname "${BASH_SOURCE[0]}")/env.sh" embedded,test
ruff check .
ruff format --check .
mypy
python -m pytest --cov --cov-report=term:skip-covered "$@"
