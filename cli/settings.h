// Settings as users write them, with their mistakes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "thinwire/status.h"

namespace thinwire::cli {

// One key and its text, checked against the table, and where the user wrote it.
struct Setting {
  std::string key;     // "train.epochs"
  std::string value;   // as parse_options takes it; lists are joined by ';'
  std::string origin;  // "recipes/demo.toml:12" or "--set"
};

// What was refused.
struct Mistake {
  std::string key;  // as it was written; empty where no key can be told
  Status status;    // names the place
};

// All that was written in one place or several.
struct Written {
  std::vector<Setting> settings;  // those that are right by themselves
  std::vector<Mistake> mistakes;

  void add(const std::string& key, Result<Setting> setting);
  void add(Written more);

  // Ok, or all mistakes, a line each, with the code of the first.
  Status status() const;
};

}  // namespace thinwire::cli
