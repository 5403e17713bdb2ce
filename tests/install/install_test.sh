#!/bin/sh
# Installs the build folder $1 somewhere else, then builds and runs a project that finds it there.
# usage: install_test.sh BUILD_FOLDER SOURCE_FOLDER SCRATCH_FOLDER
set -eu
build=$1 source=$2 scratch=$3
rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log"
cmake -S "$source/tests/install/consumer" -B "$scratch/consumer" -G Ninja \
  -DCMAKE_PREFIX_PATH="$scratch/prefix" >"$scratch/configure.log"
cmake --build "$scratch/consumer"
"$scratch/consumer/consumer"
if [ -e "$scratch/prefix/bin/thinwire" ]; then
  "$scratch/prefix/bin/thinwire" codecs >"$scratch/codecs.txt"
  "$scratch/prefix/bin/thinwire" data >"$scratch/data.txt" || [ $? = 1 ]
fi
