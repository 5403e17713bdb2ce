// Reads the files of a chain one after another.
// SPDX-License-Identifier: Apache-2.0
#include "shrink/small_chain.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/checksum.h"
#include "thinwire/small_checkpoint.h"

namespace thinwire {
namespace {

constexpr std::string_view kPrefix = "model-", kSuffix = ".small";
constexpr size_t kDigits = 3;

}  // namespace

std::string small_file_name(size_t place) {
  char name[32];
  std::snprintf(name, sizeof name, "model-%03zu.small", place);
  return name;
}

std::optional<size_t> place_of_small_file(std::string_view name) {
  if (name.size() != kPrefix.size() + kDigits + kSuffix.size() || !name.starts_with(kPrefix) ||
      !name.ends_with(kSuffix))
    return std::nullopt;
  size_t place = 0;
  for (const char digit : name.substr(kPrefix.size(), kDigits)) {
    if (digit < '0' || digit > '9') return std::nullopt;
    place = 10 * place + static_cast<size_t>(digit - '0');
  }
  return place;
}

Result<SmallModel> read_small_chain(std::span<const SmallFileBytes> files) {
  SmallModel model;
  uint64_t sum = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    auto next = read_small_model(files[i].name, files[i].bytes, i > 0 ? &model : nullptr, sum);
    if (!next) return next.status();
    model = std::move(next).value();
    sum = sum_of_small_model(files[i].bytes);
  }
  return model;
}

Result<StateArrays> expand_small_model(std::span<const SmallFileBytes> files) {
  if (files.empty()) return Status::fail(ErrorCode::kIo, "small model: no file of it is there");
  auto model = read_small_chain(files);
  if (!model) return model.status();
  auto arrays = expand(std::move(model).value());
  if (!arrays)
    return Status::fail(arrays.status().code(),
                        files.back().name + ": " + arrays.status().message());
  return arrays;
}

uint64_t file_checksum(std::span<const std::byte> bytes) { return checksum(bytes); }

}  // namespace thinwire
