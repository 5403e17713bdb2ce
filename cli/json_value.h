// What JSON holds that a run wrote, and that anything may have happened to since. A value that is
// missing or of another type is none; nothing here throws.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace thinwire::cli {

// The number under `key`, or `otherwise` where there is none.
double number(const nlohmann::json& object, const char* key, double otherwise = 0);

// The whole number under `key`, or `otherwise`.
int64_t integer(const nlohmann::json& object, const char* key, int64_t otherwise);

// Whether `key` has the value true.
bool is_true(const nlohmann::json& object, const char* key);

// The text under `key`, or `otherwise`.
std::string text(const nlohmann::json& object, const char* key, std::string_view otherwise = "");

// The list under `key`, or an empty one.
const nlohmann::json& list(const nlohmann::json& object, const char* key);

// The object under `key`, or an empty one.
const nlohmann::json& object(const nlohmann::json& object, const char* key);

// The number of steps that a line of metrics.jsonl is about; empty where it is no such line.
std::optional<uint64_t> step_of(const nlohmann::json& line);

}  // namespace thinwire::cli
