// Checks a setting against its table of keys, and words the complaints.
// SPDX-License-Identifier: Apache-2.0
#include "cli/check_setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/text.h"
#include "thinwire/auto_codec.h"
#include "thinwire/codec.h"
#include "thinwire/exchange.h"
#include "thinwire/feedback.h"
#include "thinwire/near_miss.h"
#include "thinwire/synchroniser.h"

namespace thinwire::cli {
namespace {

constexpr std::string_view kFeedbackKey = "exchange.feedback";
constexpr std::string_view kSyncKey = "sync.method";

Status fail(ErrorCode code, const std::string& origin, const std::string& why) {
  return Status::fail(code, origin + ": " + why);
}

// A codec may be auto here, which is none of the registry's.
Status with_auto(const Status& status, const std::string& text) {
  auto spec = parse_spec("codec", text);
  if (status.code() != ErrorCode::kUnknownName || !spec || text.find('|') != text.npos)
    return status;
  const std::string& name = spec.value().name;
  std::vector<std::string> known;
  for (const CodecEntry* codec : list_codecs()) known.emplace_back(codec->info.name);
  if (std::find(known.begin(), known.end(), name) != known.end()) return status;
  known.emplace_back("auto");
  return Status::fail(status.code(),
                      fmt::format("unknown codec '{}'; {}", name, known_names(name, known)));
}

Status check_codec(const Setting& setting) {
  if (is_auto(setting.value)) {
    const Status read = parse_auto(setting.value).status();
    return read ? read : fail(read.code(), setting.origin, read.message());
  }
  const auto codec = scheduled_codecs(setting.value);
  if (codec) return Status::ok();
  return fail(codec.status().code(), setting.origin,
              with_auto(codec.status(), setting.value).message());
}

Status check_feedback(const Setting& setting) {
  if (setting.value == "auto") return Status::ok();
  const auto feedback = make_feedback(setting.value, StreamSpec{});
  if (feedback) return Status::ok();
  return fail(feedback.status().code(), setting.origin,
              feedback.status().message() + " (auto: the codec's own)");
}

Status check_synchroniser(const Setting& setting) {
  if (setting.value.empty()) return Status::ok();
  const auto method = find_synchroniser(setting.value);
  if (method) return Status::ok();
  return fail(method.status().code(), setting.origin, method.status().message());
}

// A run keeps its settings in files of JSON, which has no other text. What is wrong would also
// spoil the message.
Status check_text(const Setting& setting) {
  using Json = nlohmann::json;
  const auto written = [](const std::string& text) {
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  const std::string read = Json::parse(written(setting.value)).get<std::string>();
  if (read == setting.value) return Status::ok();
  return fail(ErrorCode::kBadOption, Json::parse(written(setting.origin)).get<std::string>(),
              fmt::format("'{}' is no UTF-8 text, which recipes and a run's files are written in",
                          setting.key));
}

}  // namespace

std::string section_of(std::string_view key) {
  const size_t dot = key.find('.');
  return dot == key.npos ? "" : std::string(key.substr(0, dot));
}

std::vector<std::string> sections_of(std::span<const OptionInfo> keys) {
  std::vector<std::string> sections;
  for (const OptionInfo& row : keys)
    if (std::find(sections.begin(), sections.end(), section_of(row.name)) == sections.end())
      sections.push_back(section_of(row.name));
  return sections;
}

const OptionInfo* find_row(std::string_view key, std::span<const OptionInfo> keys) {
  const auto row =
      std::find_if(keys.begin(), keys.end(), [&](const OptionInfo& r) { return r.name == key; });
  return row == keys.end() ? nullptr : &*row;
}

Status unknown_section(const std::string& origin, const std::string& section,
                       std::span<const OptionInfo> keys) {
  const auto known = sections_of(keys);
  return fail(ErrorCode::kUnknownName, origin,
              fmt::format("unknown section '{}'{} (sections: {})", section,
                          did_you_mean(section, known), join(known, ", ")));
}

Status unknown_key(const std::string& origin, const std::string& key,
                   std::span<const OptionInfo> keys) {
  const std::string section = section_of(key);
  std::vector<std::string> all, beside;
  for (const OptionInfo& row : keys) {
    all.emplace_back(row.name);
    if (section_of(row.name) == section)
      beside.emplace_back(section.empty() ? row.name : row.name.substr(section.size() + 1));
  }
  if (section.empty()) {  // perhaps the right key without its section
    for (const std::string& known : all)
      if (known.ends_with("." + key))
        return fail(ErrorCode::kUnknownName, origin,
                    fmt::format("unknown key '{}'; did you mean '{}'?", key, known));
  }
  if (beside.empty()) return unknown_section(origin, section.empty() ? key : section, keys);
  return fail(ErrorCode::kUnknownName, origin,
              fmt::format("unknown key '{}'{} (keys of {}: {})", key, did_you_mean(key, all),
                          section, join(beside, ", ")));
}

Status check_setting(const Setting& setting, std::span<const OptionInfo> keys) {
  const OptionInfo* row = find_row(setting.key, keys);
  if (row == nullptr) return unknown_key(setting.origin, setting.key, keys);
  if (Status status = check_text(setting); !status) return status;
  const std::pair<std::string, std::string> given[] = {{setting.key, setting.value}};
  const auto parsed = parse_options(setting.origin, std::span(row, 1), given);
  if (!parsed) return parsed.status();
  if (setting.key == kCodecKey) return check_codec(setting);
  if (setting.key == kFeedbackKey) return check_feedback(setting);
  if (setting.key == kSyncKey) return check_synchroniser(setting);
  return Status::ok();
}

}  // namespace thinwire::cli
