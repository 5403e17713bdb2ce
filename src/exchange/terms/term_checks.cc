// Says which options of an exchange do not go together, and why.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/terms/term_checks.h"

#include "exchange/rules/vector_rule.h"
#include "exchange/terms/method_choice.h"

namespace thinwire {
namespace {

// A memory that follows the mean of all ranks' estimates needs it whole, at once and from all ranks
// alike.
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

// Regimes take in the means of a step when it ends, and a hierarchy hands means out.
Status check_hold(const ExchangeOptions& options, const CodecSchedule& schedule) {
  if (!options.hold) return Status::ok();
  if (options.inside != 1 || options.columns != 1)
    return Status::fail(ErrorCode::kUnsupported,
                        "exchange: hold is for exchanges of one level and one column; choose "
                        "inside = 1, columns = 1");
  return schedule.check_no_regimes("exchange", "where steps are held means may be taken back");
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

}  // namespace

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
      auto method = resolve_method(options.method, *named.codec, rule, options.results);
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

Status check_terms(const ExchangeOptions& options, const CodecSchedule& schedule,
                   const Terms& terms, bool follows_mean) {
  for (const Status& status :
       {check_memory(options, terms, follows_mean), check_hold(options, schedule),
        check_hierarchy(options, *terms.combine, *terms.method, terms.feedback, follows_mean),
        check_columns(options, *terms.combine), check_owners(options, terms.grouping)})
    if (!status) return status;
  return Status::ok();
}

}  // namespace thinwire
