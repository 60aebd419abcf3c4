#!/usr/bin/env bash
# Run a command against this checkout on a machine with a GPU: builds the native part in place,
# puts the five packages on the path, then runs what is given.
#   bash tools/gpu.sh python benchmarks/run.py --device cuda --json out.json
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}

(cd "$root/packages/capture" && "$python" setup.py -q build_ext --inplace)
for package in capture prims aot inductor meta; do
    PYTHONPATH="$root/packages/$package/src:${PYTHONPATH:-}"
done
export PYTHONPATH
exec "$@"
