// Looks for a key, and at the type of its value.
// SPDX-License-Identifier: Apache-2.0
#include "cli/json_value.h"

namespace thinwire::cli {

using Json = nlohmann::json;

double number(const Json& object, const char* key, double otherwise) {
  const auto found = object.find(key);  // none in what is no object
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

int64_t integer(const Json& object, const char* key, int64_t otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

bool is_true(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && *found == true;
}

std::string text(const Json& object, const char* key, std::string_view otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>()
                                                     : std::string(otherwise);
}

const Json& list(const Json& object, const char* key) {
  static const Json kNone = Json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : kNone;
}

const Json& object(const Json& object, const char* key) {
  static const Json kNone = Json::object();
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : kNone;
}

std::optional<uint64_t> step_of(const Json& line) {
  const auto found = line.find("step");
  if (found == line.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

}  // namespace thinwire::cli
