// Writes the text on which ranks must agree.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/terms/agreement_text.h"

#include "codec/codec_schedule.h"
#include "exchange/methods/method.h"
#include "exchange/rules/combine.h"
#include "exchange/terms/sections.h"
#include "exchange/terms/terms.h"
#include "thinwire/version.h"

namespace thinwire {
namespace {

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text;
  for (const uint64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text.empty() ? "scalar" : text;
}

}  // namespace

std::string setting_text(const ExchangeOptions& options, const std::string& before) {
  std::string codec = options.codec, feedback = options.feedback, method = options.method, grouping;
  if (Result<Terms> resolved = resolve_terms(options, options.first_step); resolved) {
    const Terms& terms = resolved.value();
    const CodecSchedule schedule = CodecSchedule::parse(options.codec).value();
    const bool follows = options.method == "auto" && !schedule.is_constant();
    codec = schedule.canonical();
    feedback = terms.feedback;
    method = std::string(terms.method->name) + (follows ? " first, then what suits the codec" : "");
    grouping = before + "grouping " + std::string(to_string(terms.grouping)) + "\n";
  }
  return before + "codec " + codec + "\n" + before + "feedback " + feedback + "\n" + before +
         "method " + method + "\n" + grouping;
}

std::string fixed_text(const ExchangeOptions& options) {
  std::string text, kinds;
  const auto line = [&](const std::string& what, const std::string& value) {
    text += what + " " + value + "\n";
  };
  Result<NamedCombine> combine = make_combine(options.combine);
  line("combine", combine ? combine.value().canonical : options.combine);
  line("inside", std::to_string(options.inside));
  line("columns", std::to_string(options.columns));
  line("weighted", options.weighted ? "yes" : "no");
  if (options.debts) line("debts", "yes");
  if (options.hold) line("hold", "yes");
  std::string owners;
  for (const int owner : options.owners)
    owners += (owners.empty() ? "" : ",") + std::to_string(owner);
  if (!owners.empty()) line("owners", owners);
  line("results", options.results == Results::kShard ? "shard" : "full");
  for (const TensorKind kind : options.dense_kinds)
    kinds += (kinds.empty() ? "" : ",") + std::string(to_string(kind));
  line("dense kinds", kinds);
  line("bucket bytes", std::to_string(options.bucket_bytes));
  line("chunk values", std::to_string(options.chunk_values));
  line("seed", std::to_string(options.seed));
  line("max skipped", std::to_string(options.max_skipped));
  line("generation", std::to_string(options.generation));
  return text;
}

std::string agreement_text(const ExchangeOptions& options, const std::vector<TensorSpec>& tensors,
                           Shapes shapes) {
  std::string text = "thinwire " THINWIRE_VERSION "\n";
  const std::vector<ExchangeOptions> settings = settings_of(options);
  for (size_t i = 0; i < settings.size(); ++i)
    text += setting_text(settings[i], name_of_setting(options, i));
  text += fixed_text(options);
  text += "steps per epoch " + std::to_string(options.steps_per_epoch) + "\n";
  text += "first step " + std::to_string(options.first_step) + "\n";
  for (const TensorSpec& tensor : tensors)
    text += "tensor " + tensor.name + " " +
            (shapes == Shapes::kSame ? shape_text(tensor.shape) + " " : "") +
            std::string(to_string(tensor.kind)) + "\n";
  return text;
}

}  // namespace thinwire
