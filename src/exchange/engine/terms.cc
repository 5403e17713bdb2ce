// Decides every "auto" of the options, and writes the text on which ranks must agree.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/engine/terms.h"

#include <optional>

#include "codec/codec_schedule.h"
#include "codec/global_codec.h"
#include "core/named_row.h"
#include "exchange/engine/auto_terms.h"
#include "exchange/engine/sections.h"
#include "exchange/methods/method.h"
#include "exchange/owner/vector_rule.h"
#include "thinwire/feedback.h"
#include "thinwire/settled.h"
#include "thinwire/version.h"

namespace thinwire {
namespace {

bool keeps_own(const Combine& rule) {
  return rule.over_vectors() != nullptr && rule.over_vectors()->keeps() == Keeps::kOwn;
}

// Method "auto" of a codec. Method gather carries every codec and takes every rule, but leaves no
// shards: then there may be none.
const MethodEntry* usual_method(const Codec& codec, const Combine& rule, Results results) {
  const MethodEntry* best = nullptr;
  for (const MethodEntry* method : list_methods()) {
    if (method->preference == 0 || !method->carries(codec)) continue;
    if (rule.wants_rows() && !method->combines) continue;
    if (keeps_own(rule) && !method->everybody) continue;
    if (results == Results::kShard && !method->leaves_shards) continue;
    if (best == nullptr || method->preference < best->preference) best = method;
  }
  return best;
}

// What users may name: a method, or none, which leaves the choice to the codec.
struct MethodChoice {
  std::string_view name;
  const MethodEntry* method = nullptr;
};

std::vector<MethodChoice> method_choices() {
  std::vector<MethodChoice> choices = {{.name = "auto"}};
  for (const MethodEntry* method : list_methods())
    choices.push_back({.name = method->name, .method = method});
  return choices;
}

Result<const MethodEntry*> settle_method(const std::string& name, const Codec& codec,
                                         const Combine& rule, Results results) {
  const MethodEntry* const usual = usual_method(codec, rule, results);
  if (results == Results::kShard && rule.over_vectors() != nullptr &&
      rule.over_vectors()->kept_rows() > 0)
    return Status::fail(
        ErrorCode::kUnsupported,
        "exchange: centred_clipping and licm follow the whole result from step to step, of "
        "which ranks have shards; choose full results, or another rule");
  if (usual == nullptr)
    return Status::fail(
        ErrorCode::kUnsupported,
        "exchange: codec '" + std::string(codec.info().name) +
            "' leaves no shards: these go with scatter-reduce and dense, whose codecs write "
            "every value in a fixed number of bytes (fp32, fp16, bf16, int8, ...)");
  const auto choices = method_choices();
  auto found = find_row(choices, "method", name, "exchange: ");
  if (!found) return found.status();
  const MethodEntry* const method = found.value()->method;
  if (method == nullptr) return usual;
  const auto refuse = [&](const std::string& why) {
    return Status::fail(ErrorCode::kUnsupported, "exchange: method " + name + " " + why + "; use " +
                                                     std::string(usual->name));
  };
  if (rule.wants_rows() && !method->combines) return refuse("combines contributions by mean alone");
  if (keeps_own(rule) && !method->everybody)
    return refuse(
        "gives each rank its part of all contributions, and this rule keeps what follows from all");
  if (results == Results::kShard && !method->leaves_shards) return refuse("leaves no shards");
  if (!method->carries(codec))
    return refuse(std::string(method->refusal) + " codec '" + std::string(codec.info().name) + "'");
  return method;
}

// The memory of feedback = "auto".
std::string memory_for(const CodecInfo& info) {
  if (!info.feedback.empty()) return std::string(info.feedback);
  return info.unbiased || info.linear ? "none" : "residual";
}

// What two levels leave no room for. A memory that follows the mean takes it before the step
// counts; in a hierarchy a fault may still be found when the mean is handed out.
Status check_hierarchy(const ExchangeOptions& options, const Combine& rule,
                       const MethodEntry& method, const std::string& memory, bool follows_mean) {
  const std::string inside = "exchange: inside = " + std::to_string(options.inside);
  if (options.inside < 1)
    return Status::fail(ErrorCode::kBadOption,
                        inside + "; it is the number of ranks in a group, 1 without a hierarchy");
  if (options.inside == 1) return Status::ok();
  if (options.weighted)
    return Status::fail(ErrorCode::kUnsupported,
                        inside +
                            ": groups count alike, and so do their ranks: none can weigh more "
                            "than another or sit out; choose weighted = false, or inside = 1");
  if (options.debts)
    return Status::fail(ErrorCode::kUnsupported,
                        inside +
                            ": a holder has the memories of its group, and no rank knows what "
                            "single ranks owe; choose debts = false, or inside = 1");
  if (rule.over_vectors() != nullptr)
    return Status::fail(ErrorCode::kUnsupported,
                        inside + ": combine = " + options.combine +
                            " chooses among whole vectors, and each rank of a group has only a "
                            "part of its group's; choose inside = 1, or one of " +
                            names_of_value_rules());
  if (options.results == Results::kShard)
    return Status::fail(ErrorCode::kUnsupported,
                        inside + " gives every rank the full results; shards need inside = 1");
  if (method.blocks)
    return Status::fail(ErrorCode::kUnsupported,
                        inside + ": method " + std::string(method.name) +
                            " waits for other groups while this rank's own waits for it; choose "
                            "another method, or inside = 1");
  if (follows_mean)
    return Status::fail(ErrorCode::kUnsupported,
                        inside + ": memory " + memory +
                            " follows the mean, which may still arrive corrupt inside a group "
                            "when it was followed between them; choose another memory");
  return Status::ok();
}

// Who takes part in a step, and what a rule chooses, must be the same in all columns.
Status check_columns(const ExchangeOptions& options, const Combine& rule) {
  const std::string columns = "exchange: columns = " + std::to_string(options.columns);
  if (options.columns < 1)
    return Status::fail(ErrorCode::kBadOption,
                        columns + "; it is the number of exchanges side by side, at least 1");
  if (options.columns == 1) return Status::ok();
  const auto refuse = [&](const std::string& why) {
    return Status::fail(ErrorCode::kUnsupported, columns + ": " + why);
  };
  if (options.inside != 1)
    return refuse("the ranks of a row have other tensors each; choose inside = 1");
  if (options.results == Results::kShard)
    return refuse("every rank gets the whole mean of its column; choose full results");
  if (options.weighted)
    return refuse(
        "the ranks of a row count together, so that none can weigh more than another or "
        "sit out; choose weighted = false");
  if (options.debts)
    return refuse("ranks tell what they owe only to those of their column; choose debts = false");
  if (rule.over_vectors() != nullptr)
    return refuse("combine = " + options.combine +
                  " would choose other ranks in each column; choose one of " +
                  names_of_value_rules());
  return Status::ok();
}

Status check_owners(const ExchangeOptions& options, Grouping grouping) {
  if (options.owners.empty()) return Status::ok();
  if (options.results != Results::kShard)
    return Status::fail(ErrorCode::kUnsupported,
                        "exchange: owners are those of shards; choose results = kShard");
  if (grouping != Grouping::kTensor)
    return Status::fail(ErrorCode::kUnsupported,
                        "exchange: tensors of several owners cannot share a stream in grouping " +
                            std::string(to_string(grouping)) + "; choose grouping tensor");
  return Status::ok();
}

// A lossless codec selects nothing, so that its tensors may be in one group with those of a codec
// that does.
Status check_grouping(std::optional<Grouping> grouping, const std::string& spec,
                      const CodecInfo& info) {
  if (grouping != Grouping::kGlobal || info.global_threshold || info.lossless) return Status::ok();
  std::string names;
  for (const CodecEntry* entry : list_codecs())
    if (entry->info.global_threshold)
      names += (names.empty() ? "" : ", ") + std::string(entry->info.name);
  return Status::fail(
      ErrorCode::kUnsupported,
      "exchange: grouping global selects by one threshold for all tensors, and codec '" + spec +
          "' has none that they could share; codecs that have: " + names);
}

// Regimes take in the means of a step when it ends, and a hierarchy hands means out.
Status check_hold(const ExchangeOptions& options, const CodecSchedule& schedule) {
  if (!options.hold) return Status::ok();
  if (options.inside != 1 || options.columns != 1)
    return Status::fail(ErrorCode::kUnsupported,
                        "exchange: hold is for exchanges of one level and one column; choose "
                        "inside = 1, columns = 1");
  return schedule.check_no_regimes("exchange", "where steps are held means may be taken back");
}

// Streams of one section have one method, whatever their regimes are.
Status check_regimes(const ExchangeOptions& options, const CodecSchedule& schedule,
                     const Combine& rule) {
  if (options.results == Results::kShard)
    if (Status status = schedule.check_no_regimes(
            "exchange", "where results are shards a rank has only its own");
        !status)
      return status;
  for (const auto& [critical, other] : schedule.regimes()) {
    const MethodEntry* methods[2] = {};
    for (const std::string& spec : {critical, other}) {
      const NamedCodec named = make_codec(spec).value();
      auto method = settle_method(options.method, *named.codec, rule, options.results);
      if (!method) return method.status();
      methods[spec == critical ? 0 : 1] = method.value();
    }
    if (critical != other && methods[0] != methods[1])
      return Status::fail(ErrorCode::kBadOption,
                          "exchange: '" + critical + "' goes with method " +
                              std::string(methods[0]->name) + " and '" + other + "' with " +
                              std::string(methods[1]->name) +
                              ", but streams in both regimes of an accordion need one method; "
                              "name one that has both");
  }
  return Status::ok();
}

// What outlasts a change of codec: buckets, streams and the memory. It must suit all codecs of a schedule. The method is that
// of the last of them.
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
        settle_method(options.method, *named.codec, *terms.combine, options.results);
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
        return Status::fail(ErrorCode::kBadOption, "exchange: the codecs of '" + options.codec +
                                                       "' go with memories " + terms.feedback +
                                                       " and " + wanted +
                                                       "; choose one as feedback");
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

// A memory that follows the mean of all ranks' estimates needs it whole, at once and from all ranks alike.
Status check_memory(const ExchangeOptions& options, const Terms& terms, bool follows_mean) {
  if (!follows_mean) return Status::ok();
  const auto refuse = [&](const std::string& why) {
    return Status::fail(ErrorCode::kUnsupported,
                        "exchange: memory " + terms.feedback + " follows the " + why);
  };
  if (options.weighted)
    return refuse(
        "mean over all ranks' estimates, so that no rank can weigh more than another or sit out; "
        "choose another memory, or weighted = false");
  if (options.results == Results::kShard)
    return refuse("whole mean, of which ranks have shards; choose another memory");
  if (options.hold)
    return refuse(
        "mean at once, so that no step can be held; choose another memory, such as residual");
  if (terms.combine->over_vectors() != nullptr)
    return refuse("mean over all ranks' estimates, and combine = " + options.combine +
                  " leaves some of them out; choose another memory, or combine = mean");
  return Status::ok();
}

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text;
  for (const uint64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text.empty() ? "scalar" : text;
}

}  // namespace

std::string describe(const Fault& fault) {
  if (fault.code == ErrorCode::kPeerLost || fault.code == ErrorCode::kTimeout) return fault.stream;
  if (fault.code == ErrorCode::kOk && fault.rank < 0)
    return fault.stream.empty() ? "no rank took part" : fault.stream;
  if (fault.code == ErrorCode::kOk)
    return "rank " + std::to_string(fault.rank) + " asked to skip the step";
  const std::string of_rank = fault.rank < 0 ? "" : " of rank " + std::to_string(fault.rank);
  const std::string what = fault.code == ErrorCode::kCorrupt ? "arrived corrupt"
                           : fault.rank < 0                  ? "has a sum that is not finite"
                                                             : "has a NaN or Inf";
  return "stream '" + fault.stream + "'" + of_rank + " " + what;
}

Result<SettledOptions> settled_options(const ExchangeOptions& options) {
  if (Status status = check_auto(options); !status) return status;
  Result<Terms> settled = resolve_terms(auto_stand_in(options), options.first_step);
  if (!settled) return settled.status();
  const Terms& terms = settled.value();
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
  for (const Status& status :
       {check_memory(options, terms, follows_mean), check_hold(options, schedule),
        check_hierarchy(options, *terms.combine, *terms.method, terms.feedback, follows_mean),
        check_columns(options, *terms.combine), check_owners(options, terms.grouping)})
    if (!status) return status;

  NamedCodec now =
      std::move(make_codec(schedule.at(step, options.steps_per_epoch, critical)).value());
  terms.method = settle_method(options.method, *now.codec, *terms.combine, options.results).value();
  terms.codec = std::move(now.codec);
  if (terms.grouping == Grouping::kGlobal) terms.codec = with_global_threshold(terms.codec);
  terms.codec_text = std::move(now.canonical);
  return terms;
}

std::string setting_text(const ExchangeOptions& options, const std::string& before) {
  std::string codec = options.codec, feedback = options.feedback, method = options.method, grouping;
  if (Result<Terms> settled = resolve_terms(options, options.first_step); settled) {
    const Terms& terms = settled.value();
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

Result<std::vector<NamedCodec>> scheduled_codecs(std::string_view text) {
  Result<CodecSchedule> schedule = CodecSchedule::parse(text);
  if (!schedule) return schedule.status();
  std::vector<NamedCodec> codecs;
  for (const std::string& spec : schedule.value().ends())
    codecs.push_back(std::move(make_codec(spec).value()));
  return codecs;
}

}  // namespace thinwire
