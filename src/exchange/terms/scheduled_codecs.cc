// scheduled_codecs: the codecs that a schedule names; is_lossless.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/codec_schedule.h"
#include "thinwire/exchange.h"

namespace thinwire {

Result<std::vector<NamedCodec>> scheduled_codecs(std::string_view text) {
  Result<CodecSchedule> schedule = CodecSchedule::parse(text);
  if (!schedule) return schedule.status();
  std::vector<NamedCodec> codecs;
  for (const std::string& spec : schedule.value().ends())
    codecs.push_back(std::move(make_codec(spec).value()));
  return codecs;
}

bool is_lossless(std::string_view codec) {
  auto made = scheduled_codecs(codec);
  const std::vector<NamedCodec>& codecs = made.value();
  return std::all_of(codecs.begin(), codecs.end(),
                     [](const NamedCodec& named) { return named.codec->info().lossless; });
}

}  // namespace thinwire
