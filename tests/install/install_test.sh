#!/bin/sh
# Installs the build folder $1 somewhere else, then builds and runs projects that find it there.
# usage: install_test.sh BUILD_FOLDER SOURCE_FOLDER SCRATCH_FOLDER
set -eu
unset CXXFLAGS CPPFLAGS || :
build=$1 source=$2 scratch=$3
rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log"

# build_project PROJECT NAME ARGUMENTS...: configures tests/install/PROJECT in $scratch/NAME and builds it.
build_project() {
  project=$1 name=$2
  shift 2
  cmake -S "$source/tests/install/$project" -B "$scratch/$name" -G Ninja \
    -DCMAKE_PREFIX_PATH="$scratch/prefix" "$@" >"$scratch/$name.log"
  cmake --build "$scratch/$name"
}
build_project consumer consumer
"$scratch/consumer/consumer"

# README's program, where the project names no language standard and where it names a newer one. Its flags are
# its own: thinwire adds a standard and nothing else.
for standard in "" 23; do
  name=readme$standard
  mkdir -p "$scratch/$name"
  python3 "$source/tests/install/readme_snippet.py" "$source/README.md" >"$scratch/$name/main.cc"
  build_project readme "$name" ${standard:+-DCMAKE_CXX_STANDARD=$standard}
  "$scratch/$name/app" | grep "bytes sent"
  if grep -E -e ' -(W[a-z]|ffp-contract)' "$scratch/$name/compile_commands.json"; then
    echo "thinwire's own compiler options reach its users" >&2
    exit 1
  fi
done

if [ -e "$scratch/prefix/bin/thinwire" ]; then
  "$scratch/prefix/bin/thinwire" codecs >"$scratch/codecs.txt"
  "$scratch/prefix/bin/thinwire" data >"$scratch/data.txt" || [ $? = 1 ]
fi
