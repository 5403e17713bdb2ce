// The table of codecs, and how a text becomes one of them.
// SPDX-License-Identifier: Apache-2.0
#include <deque>

#include "codec/builtin.h"
#include "core/check.h"
#include "core/named_row.h"

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
      lgc_entry(),
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
      demo_entry(),
      srht_entry(),
      countsketch_entry(),
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
  auto named = find_named_row(table(), "codec", spec);
  if (!named) return named.status();
  return NamedCodec{.codec = named.value().row->make(named.value().options),
                    .canonical = named.value().canonical()};
}

}  // namespace thinwire
