// Where recipes are found: as files, or by the bare name of one that ships with thinwire.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "thinwire/status.h"

namespace thinwire::cli {

// A path ("my/run.toml") is taken as it is; a bare name ("demo") is looked for among the shipped
// recipes: beside the installed program, then in the source tree it was built from. Fails with the
// names there are.
Result<std::string> find_recipe(const std::string& given);

// "demo" for "recipes/demo.toml".
std::string recipe_name(const std::string& path);

}  // namespace thinwire::cli
