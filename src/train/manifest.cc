// Manifest: written and read as JSON.
// SPDX-License-Identifier: Apache-2.0
#include "train/manifest.h"

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/checksum.h"
#include "thinwire/version.h"
#include "train/durable_file.h"

namespace thinwire {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "thinwire checkpoint";
constexpr int kVersion = 2;
constexpr const char* kOwnSum = "xxh3";  // of everything else in the file
constexpr int kMaxRanks = 1 << 20;
constexpr int kDeepest = 16;  // levels of a file

uint64_t from_hex(const std::string& text) {
  uint64_t number = 0;
  const auto end = text.data() + text.size();
  if (std::from_chars(text.data(), end, number, 16).ptr != end || text.empty())
    throw Error(ErrorCode::kCorrupt, "a checksum is not a hexadecimal number");
  return number;
}

Manifest parse(const Json& json) {
  Manifest manifest;
  manifest.step = json.at("step").get<uint64_t>();
  manifest.world_size = json.at("world_size").get<int>();
  if (manifest.world_size < 1 || manifest.world_size > kMaxRanks)
    throw Error(ErrorCode::kCorrupt, "impossible number of ranks");
  manifest.recipe = json.at("recipe").get<std::string>();
  manifest.totals = RunTotals::from_json(json.at("totals").dump()).value();
  for (const auto& [name, file] : json.at("files").items())
    manifest.files[name] = {.bytes = file.at("bytes").get<uint64_t>(),
                            .xxh3 = from_hex(file.at("xxh3").get<std::string>())};
  return manifest;
}

Json to_json(const SmallReport& report) {
  Json json = {{"exact_loss", report.exact_loss},   {"loss", report.loss},
               {"exact_bytes", report.exact_bytes}, {"bytes", report.bytes},
               {"follows", report.follows},         {"trials", report.trials},
               {"seconds", report.seconds},         {"treatments", Json::object()}};
  for (const auto& [name, treatment] : report.treatments) json["treatments"][name] = treatment;
  return json;
}

// However it is laid out: numbers are written so that they read back as the same.
uint64_t sum_of(const Json& json) {
  const std::string text = json.dump();
  return checksum(std::as_bytes(std::span(text)));
}

}  // namespace

std::string hex(uint64_t number) {
  char buffer[17];
  std::snprintf(buffer, sizeof buffer, "%016llx", static_cast<unsigned long long>(number));
  return buffer;
}

void write_manifest(const std::filesystem::path& path, const Manifest& manifest) {
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"thinwire", THINWIRE_VERSION},
               {"step", manifest.step},
               {"world_size", manifest.world_size},
               {"recipe", manifest.recipe},
               {"totals", Json::parse(manifest.totals.to_json())}};
  for (const auto& [name, mark] : manifest.files)
    json["files"][name] = {{"bytes", mark.bytes}, {"xxh3", hex(mark.xxh3)}};
  if (manifest.small) json["small"] = to_json(*manifest.small);
  json[kOwnSum] = hex(sum_of(json));
  const std::string text = json.dump(2) + '\n';
  write_durably(path, std::as_bytes(std::span(text)));
}

Manifest read_manifest(const std::filesystem::path& path) {
  const auto bytes = read_file(path);
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const auto foreign = [&](const std::string& why) {
    return Error(ErrorCode::kCorrupt, path.string() + ": truncated or foreign: " + why);
  };
  // What lies deeper than anything that is written here is left out, so that no depth is too deep
  // for functions that call themselves. The checksum misses it.
  const auto shallow = [](int depth, Json::parse_event_t /*event*/, Json& /*parsed*/) {
    return depth <= kDeepest;
  };
  Json json = Json::parse(text, text + bytes.size(), shallow, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("format") || json["format"] != kFormat)
    throw foreign("not the progress of a thinwire checkpoint");
  try {
    if (json.at("version").get<int>() != kVersion)
      throw Error(ErrorCode::kUnsupported,
                  path.string() + ": written by another version of thinwire");
    const uint64_t sum = from_hex(json.at(kOwnSum).get<std::string>());
    json.erase(kOwnSum);
    if (sum_of(json) != sum) throw foreign("damaged: its checksum is wrong");
    return parse(json);
  } catch (const Json::exception& error) {
    throw foreign(error.what());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported) throw;
    throw foreign(error.what());
  }
}

}  // namespace thinwire
