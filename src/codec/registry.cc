// The table of codecs, and how a text becomes one of them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>

#include "codec/builtin.h"
#include "core/check.h"
#include "thinwire/near_miss.h"

namespace thinwire {
namespace {

// Ids and names are on other people's disks and wires: never reuse one
// (tests/golden/codec_ids.txt).
std::deque<CodecEntry>& table() {
  // clang-format off
  static std::deque<CodecEntry> entries = {
      fp32_entry(),
      fp16_entry(),
      bf16_entry(),
      topk_entry(),
      adacomp_entry(),
      sidco_entry(),
      dgc_entry(),
      threshold_entry(),
      randomk_entry(),
      gaussiank_entry(),
      redsync_entry(),
      scalecom_entry(),
      uniform_entry(),
      int8_entry(),
      int4_entry(),
      acsgd_entry(),
      qsgd_entry(),
      terngrad_entry(),
      natural_entry(),
      sign_entry(),
      onebit_entry(),
      signum_entry(),
      powersgd_entry(),
  };
  // clang-format on
  return entries;
}

}  // namespace

std::string_view to_string(Agreed agreed) noexcept {
  switch (agreed) {
    case Agreed::kNothing:
      return "nothing";
    case Agreed::kScale:
      return "scale";
    case Agreed::kPositions:
      return "positions";
    case Agreed::kFactors:
      return "factors";
  }
  return "unknown";
}

std::vector<const CodecEntry*> list_codecs() {
  std::vector<const CodecEntry*> list;
  for (const CodecEntry& entry : table()) list.push_back(&entry);
  return list;
}

void register_codec(CodecEntry entry) {
  const std::string name(entry.info.name);
  THINWIRE_CHECK(entry.info.id >= 128, "codec '" + name + "': ids below 128 are thinwire's own");
  THINWIRE_CHECK(entry.make != nullptr, "codec '" + name + "': has no factory");
  for (const CodecEntry& other : table()) {
    THINWIRE_CHECK(other.info.name != name, "codec '" + name + "': the name is taken");
    THINWIRE_CHECK(other.info.id != entry.info.id,
                   "codec '" + name + "': id " + std::to_string(entry.info.id) + " belongs to '" +
                       std::string(other.info.name) + "'");
  }
  table().push_back(std::move(entry));
}

Result<NamedCodec> make_codec(std::string_view spec) {
  Result<SpecText> text = parse_spec("codec", spec);
  if (!text) return text.status();
  const std::string& name = text.value().name;
  const auto found = std::find_if(table().begin(), table().end(),
                                  [&](const CodecEntry& row) { return row.info.name == name; });
  if (found == table().end()) {
    std::vector<std::string> names;
    for (const CodecEntry& row : table()) names.emplace_back(row.info.name);
    return Status::fail(ErrorCode::kUnknownName,
                        "unknown codec '" + name + "'; " + known_names(name, names));
  }
  Result<Options> options =
      parse_options("codec '" + name + "'", found->options, text.value().settings);
  if (!options) return options.status();
  const std::string settings = options.value().canonical();
  return NamedCodec{.codec = found->make(options.value()),
                    .canonical = settings.empty() ? name : name + ":" + settings};
}

}  // namespace thinwire
