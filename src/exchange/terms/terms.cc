// Decides every "auto" of the options.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/terms/terms.h"

#include <optional>

#include "codec/codec_schedule.h"
#include "codec/global_codec.h"
#include "exchange/methods/method.h"
#include "exchange/terms/auto_terms.h"
#include "exchange/terms/method_choice.h"
#include "exchange/terms/term_checks.h"
#include "thinwire/feedback.h"
#include "thinwire/settled.h"

namespace thinwire {
namespace {

// The memory of feedback = "auto".
std::string memory_for(const CodecInfo& info) {
  if (!info.feedback.empty()) return std::string(info.feedback);
  return info.unbiased || info.linear ? "none" : "residual";
}

// What outlasts a change of codec: buckets, streams and the memory. It must suit all codecs of a
// schedule. The method is that of the last of them.
Status fold_codecs(const ExchangeOptions& options, const CodecSchedule& schedule, Terms& terms) {
  terms.divisible = terms.everybody = true;
  terms.feedback = "none";
  size_t block = 0;
  std::optional<Grouping> grouping = options.grouping;
  for (const std::string& spec : schedule.ends()) {
    const NamedCodec named = make_codec(spec).value();
    const CodecInfo& info = named.codec->info();
    if (Status status = check_grouping(options.grouping, spec, info); !status) return status;
    Result<const MethodEntry*> method =
        resolve_method(options.method, *named.codec, *terms.combine, options.results);
    if (!method) return method.status();
    if (options.results == Results::kShard && terms.method != nullptr &&
        (method.value() != terms.method || info.block != block))
      return Status::fail(
          ErrorCode::kBadOption,
          "exchange: the codecs of '" + options.codec +
              "' deal out shards differently: one method and one block size are needed");
    terms.method = method.value();
    block = info.block;
    terms.divisible = terms.divisible && method.value()->cuts_anywhere;
    terms.everybody = terms.everybody && method.value()->everybody;
    if (const std::string wanted = memory_for(info); wanted != "none") {
      if (options.feedback == "auto" && terms.feedback != "none" && terms.feedback != wanted)
        return Status::fail(ErrorCode::kBadOption,
                            "exchange: the codecs of '" + options.codec + "' go with memories " +
                                terms.feedback + " and " + wanted + "; choose one as feedback");
      terms.feedback = wanted;
    }
    if (options.grouping) continue;
    if (grouping.value_or(info.grouping) != info.grouping)
      return Status::fail(ErrorCode::kBadOption,
                          "exchange: the codecs of '" + options.codec +
                              "' group tensors differently; choose a grouping, tensor or model");
    grouping = info.grouping;
  }
  terms.grouping = *grouping;
  if (options.feedback != "auto") terms.feedback = options.feedback;
  return Status::ok();
}

}  // namespace

Result<SettledOptions> settled_options(const ExchangeOptions& options) {
  if (Status status = check_auto(options); !status) return status;
  Result<Terms> resolved = resolve_terms(auto_stand_in(options), options.first_step);
  if (!resolved) return resolved.status();
  const Terms& terms = resolved.value();
  return SettledOptions{.codec = terms.codec_text,
                        .feedback = terms.feedback,
                        .method = std::string(terms.method->name),
                        .grouping = terms.grouping};
}

Result<Terms> resolve_terms(const ExchangeOptions& options, uint64_t step, bool critical) {
  if (is_auto(options.codec))
    return Status::fail(ErrorCode::kUnsupported,
                        "exchange: codec 'auto' is chosen where a run of steps begins "
                        "(make_auto_exchange); name a codec here");
  Result<CodecSchedule> parsed = CodecSchedule::parse(options.codec);
  if (!parsed) return parsed.status();
  const CodecSchedule& schedule = parsed.value();
  if (Status status = schedule.check_epochs("exchange", options.steps_per_epoch); !status)
    return status;
  Result<NamedCombine> combine = make_combine(options.combine);
  if (!combine) return combine.status();
  Terms terms;
  terms.combine = std::move(combine.value().rule);
  if (Status status = check_regimes(options, schedule, *terms.combine); !status) return status;
  if (Status status = fold_codecs(options, schedule, terms); !status) return status;
  auto memory = make_feedback(terms.feedback, StreamSpec{});
  if (!memory)
    return Status::fail(memory.status().code(),
                        memory.status().message() + " (auto: the codec's own)");
  const bool follows_mean = memory.value()->shares_state();
  if (Status status = check_terms(options, schedule, terms, follows_mean); !status) return status;

  NamedCodec now =
      std::move(make_codec(schedule.at(step, options.steps_per_epoch, critical)).value());
  terms.method =
      resolve_method(options.method, *now.codec, *terms.combine, options.results).value();
  terms.codec = std::move(now.codec);
  if (terms.grouping == Grouping::kGlobal) terms.codec = with_global_threshold(terms.codec);
  terms.codec_text = std::move(now.canonical);
  return terms;
}

}  // namespace thinwire
