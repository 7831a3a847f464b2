#!/bin/sh
# Packs what a machine with a card needs to run tests/gpu and benchmarks/gpu: ingero with the
# libraries it links to, its dependencies for that machine's Python, the tests and benchmarks.
# Nothing is installed there. `make gpu-bundle` runs this; TARGET_PYTHON names the version.
set -eu
cd "$(dirname "$0")/.."
target=${TARGET_PYTHON:-3.12}
bundle=build/gpu
needed="click iniconfig markdown-it-py mdurl msgspec numpy nvidia-ml-py packaging platformdirs pluggy pygments
        pytest pytest-timeout pyyaml rich"

rm -rf "$bundle"
mkdir -p "$bundle/site"
tools/wheel.sh "$bundle/wheel"

# The lines of the lock that name what is needed, with their hashes.
for name in $needed; do
    awk -v name="$name" '
        /^[a-z0-9]/ { take = index($1, name "==") == 1 }
        /^ *#/ { next }
        take' requirements/dev.txt
done >"$bundle/requirements.txt"
python -m pip install --quiet --disable-pip-version-check --target "$bundle/site" --python-version "$target" \
    --only-binary=:all: --no-deps --require-hashes -r "$bundle/requirements.txt"
python -m pip install --quiet --disable-pip-version-check --target "$bundle/site" --python-version "$target" \
    --only-binary=:all: --no-deps "$bundle"/wheel/*.whl
find "$bundle/site" -name tests -prune -exec rm -rf {} +
tar -czf build/gpu-bundle.tgz -C "$bundle" site -C "$PWD" benchmarks tests/__init__.py tests/gpu tests/workloads \
    tools/on_gpu.sh pyproject.toml
echo "build/gpu-bundle.tgz: copy it to a machine with a card, unpack it in an empty folder, then: sudo tools/on_gpu.sh test"
