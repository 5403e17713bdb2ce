// Reads "auto:loss=...", and says what stands for it where an exchange must be settled before it
// has chosen.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/terms/auto_terms.h"

#include <algorithm>
#include <array>
#include <utility>

#include "codec/codec_schedule.h"
#include "thinwire/options.h"

namespace thinwire {
namespace {

constexpr std::array<std::string_view, 3> kLosses = {"none", "small", "any"};

const std::array<OptionInfo, 2>& auto_options() {
  static const std::array<OptionInfo, 2> rows = {
      {{.name = "loss",
        .type = OptionType::kChoice,
        .fallback = "small",
        .choices = {"none", "small", "any"},
        .help = "what codecs may lose"},
       {.name = "plan", .fallback = "", .help = "file of decisions to follow"}}};
  return rows;
}

Status refuse(const std::string& why) {
  return Status::fail(ErrorCode::kUnsupported, "exchange: codec 'auto' " + why);
}

}  // namespace

std::string_view to_string(AllowedLoss loss) noexcept { return kLosses[static_cast<size_t>(loss)]; }

bool is_auto(std::string_view codec) noexcept {
  return codec == "auto" || codec.starts_with("auto:");
}

Result<AutoCodec> parse_auto(std::string_view codec) {
  Result<SpecText> spec = parse_spec("codec", codec);
  if (!spec) return spec.status();
  Result<Options> options = parse_options("codec 'auto'", auto_options(), spec.value().settings);
  if (!options) return options.status();
  const auto loss = std::find(kLosses.begin(), kLosses.end(), options.value().text("loss"));
  return AutoCodec{.loss = static_cast<AllowedLoss>(loss - kLosses.begin()),
                   .plan = options.value().text("plan")};
}

// A plan's file may say any codec. Whoever names one says by `loss` for what memories are to be
// prepared.
ExchangeOptions auto_stand_in(ExchangeOptions options) {
  if (!is_auto(options.codec)) return options;
  constexpr std::array<const char*, 3> kCodecs = {"fp32", "int8", "topk:density=0.01"};
  Result<AutoCodec> parsed = parse_auto(options.codec);
  if (!parsed) return options;
  options.codec = kCodecs[static_cast<size_t>(parsed.value().loss)];
  options.grouping = Grouping::kTensor;
  return options;
}

Status check_auto(const ExchangeOptions& options) {
  for (const TensorRule& rule : options.rules)
    if (is_auto(rule.codec))
      return refuse(
          "is for a whole exchange, and rule '" + rule.pattern +
          "' is for some of its tensors; name a codec in the rule, and auto for the others");
  if (!is_auto(options.codec)) return Status::ok();
  if (Result<AutoCodec> parsed = parse_auto(options.codec); !parsed) return parsed.status();
  for (const TensorRule& rule : options.rules) {
    if (rule.method == "library")
      return refuse("predicts no method library, which rule '" + rule.pattern + "' has");
    if (auto schedule = CodecSchedule::parse(rule.codec);
        schedule && !schedule.value().is_constant())
      return refuse("predicts no schedules, and rule '" + rule.pattern + "' has '" + rule.codec +
                    "'; name one codec in the rule");
  }
  if (options.method != "auto")
    return refuse("chooses the method, too; choose method = auto, not " + options.method);
  if (options.grouping && *options.grouping != Grouping::kTensor)
    return refuse("gives each tensor a codec; choose grouping tensor or auto, not " +
                  std::string(to_string(*options.grouping)));
  if (options.combine != "mean")
    return refuse(
        "predicts steps that take the mean alone; choose a codec, or combine = mean, not " +
        options.combine);
  if (options.inside != 1)
    return refuse("predicts no hierarchies; choose a codec, or inside = 1, not " +
                  std::to_string(options.inside));
  if (options.columns != 1)
    return refuse("predicts no exchanges side by side; choose a codec, or columns = 1, not " +
                  std::to_string(options.columns));
  if (options.results == Results::kShard)
    return refuse("predicts no shards; choose a codec, or full results");
  if (options.hold)
    return refuse("goes on with the ranks that it began with; choose a codec, or hold = false");
  return Status::ok();
}

}  // namespace thinwire
