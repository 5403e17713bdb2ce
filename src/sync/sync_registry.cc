// The table of rules, and make_synchroniser, which succeeds on all ranks or on none.
// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "codec/codec_schedule.h"
#include "core/check.h"
#include "core/checksum.h"
#include "core/named_row.h"
#include "exchange/step/verdict.h"
#include "sync/replica_mean.h"
#include "sync/round_terms.h"
#include "sync/sync_rules.h"
#include "thinwire/agreement.h"
#include "thinwire/version.h"

namespace thinwire {
namespace {

std::vector<const SyncRuleEntry*> all_rules() {
  return {&average_entry(),  &leader_entry(),    &easgd_entry(),
          &diloco_entry(),   &streaming_entry(), &sparseloco_entry(),
          &downpour_entry(), &parle_entry(),     &gossip_entry()};
}

using NamedRule = decltype(find_named_row(all_rules(), "", ""));

NamedRule find_rule(const std::string& method) {
  NamedRule named = find_named_row(all_rules(), "synchroniser", method);
  if (!named || named.value().row->check == nullptr) return named;
  if (Status status = named.value().row->check(named.value().options); !status) return status;
  return named;
}

// A rule and the text that selects it, with every option spelt out.
struct Chosen {
  std::unique_ptr<SyncRule> rule;
  std::string canonical;
};

// Rounds are what a codec's schedule counts, so that an epoch has no meaning there.
void check_schedule(const SyncRuleEntry& rule, const std::string& codec) {
  const CodecSchedule schedule = std::move(CodecSchedule::parse(codec).value());
  if (!rule.scheduled && !schedule.is_constant())
    throw Error(ErrorCode::kUnsupported, "synchroniser '" + std::string(rule.info.name) +
                                             "' keeps to one codec, and '" + codec +
                                             "' is a schedule");
  schedule.check_no_regimes("synchroniser", "workers with a local method send none of these")
      .or_throw();
  if (schedule.counts_epochs())
    throw Error(ErrorCode::kBadOption,
                "synchroniser: the schedule '" + codec +
                    "' counts in epochs, but what a local method sends is counted in rounds: write "
                    "its times as steps, each of which is a round, as in warmup(0.001;100steps)");
}

// What is known without ranks and tensors.
void check_row(const SyncRuleEntry& row, const SynchroniserOptions& options) {
  check_schedule(row, options.codec);
  const std::string origin = "synchroniser '" + std::string(row.info.name) + "': ";
  if (row.lossless && !is_lossless(options.codec))
    throw Error(ErrorCode::kUnsupported,
                origin + "codec '" + options.codec +
                    "' is lossy, and peers that change have nothing a difference could refer to");
  if (options.momentum == "memory" && !row.momentum)
    throw Error(ErrorCode::kBadOption,
                origin +
                    "has no momentum that could act in the memory; that of a worker's own "
                    "optimiser stays there, as its gradients stay on the rank");
  const auto require_auto = [&](const char* what, const char* setting, const std::string& value) {
    if (row.memory == nullptr && value != "auto")
      throw Error(ErrorCode::kBadOption, origin + "has no " + what + " to choose, and " + setting +
                                             " is '" + value + "'; choose auto");
  };
  require_auto("memory", "feedback (exchange.feedback)", options.feedback);
  require_auto("collective", "exchange (exchange.method)", options.exchange);
}

Chosen choose(const SyncSetup& setup) {
  const auto named = find_rule(setup.options.method).value();
  const SyncRuleEntry& row = *named.row;
  check_row(row, setup.options);
  std::set<std::string_view> names;
  for (const TensorSpec& tensor : setup.tensors)
    THINWIRE_CHECK(names.insert(tensor.name).second,
                   "synchroniser: two tensors are named '" + tensor.name + "'");
  return {row.make(named.options, setup), named.canonical()};
}

// What ranks must share; the exchange compares codec and tensors in more detail.
std::string agreement_text(const SyncSetup& setup, const Chosen& chosen) {
  const SynchroniserOptions& options = setup.options;
  std::string text =
      "thinwire " THINWIRE_VERSION "\nmethod " + chosen.canonical + "\ncodec " + options.codec +
      "\nfeedback " + options.feedback + "\nexchange " + options.exchange + "\nmomentum " +
      options.momentum + "\nseed " + std::to_string(options.seed) + "\nmax skipped " +
      std::to_string(options.max_skipped) + "\ngeneration " + std::to_string(options.generation) +
      "\nrecorded " + (options.recorded ? "yes" : "no") + "\njudge " +
      (options.judge ? "yes" : "no") + "\n";
  for (const TensorSpec& tensor : setup.tensors) {
    text += "tensor " + tensor.name + " " + std::string(to_string(tensor.kind));
    for (const uint64_t extent : tensor.shape) text += " " + std::to_string(extent);
    text += "\n";
  }
  text += "start " + std::to_string(checksum(std::as_bytes(setup.start))) + "\n";
  return text + chosen.rule->agreement();
}

}  // namespace

std::vector<SynchroniserInfo> list_synchronisers() {
  std::vector<SynchroniserInfo> rows;
  for (const SyncRuleEntry* row : all_rules()) rows.push_back(row->info);
  return rows;
}

Result<NamedSynchroniser> find_synchroniser(const std::string& method) {
  auto named = find_rule(method);
  if (!named) return named.status();
  return NamedSynchroniser{.entry = &named.value().row->info,
                           .options = std::move(named.value().options)};
}

Result<RoundTerms> round_terms(const SynchroniserOptions& options) {
  auto named = find_rule(options.method);
  if (!named) return named.status();
  const SyncRuleEntry& row = *named.value().row;
  RoundTerms terms{.rule = row.info.name, .options = named.value().options};
  try {
    check_row(row, options);
    if (row.memory != nullptr)
      terms.exchange = replica_exchange(options, row.memory(terms.options, options), 0);
  } catch (const Error& error) {
    return Status::fail(error.code(), error.what());
  }
  return terms;
}

std::unique_ptr<Synchroniser> make_synchroniser(Group& group, Store& store,
                                                std::vector<TensorSpec> tensors,
                                                std::span<const float> start,
                                                const SynchroniserOptions& options) {
  check_rank_count(group, "synchroniser");
  const SyncSetup setup{group, store, std::move(tensors), start, options};
  Chosen chosen;
  std::exception_ptr error;
  std::string text;
  try {
    chosen = choose(setup);
    text = agreement_text(setup, chosen);
  } catch (const Error& mistake) {
    error = std::current_exception();
    text = mistake.what();  // what the others are told where they made none
  }
  require_agreement(group, "synchroniser", text);
  if (error) std::rethrow_exception(error);
  chosen.rule->connect(group);
  return std::move(chosen.rule);
}

}  // namespace thinwire
