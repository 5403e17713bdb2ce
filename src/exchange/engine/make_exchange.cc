// make_exchange and join_exchange: check what all ranks find alike, and build the runner.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/engine/make_exchange.h"

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "exchange/engine/make_runner.h"
#include "exchange/engine/threaded_exchange.h"
#include "exchange/levels/column_runner.h"
#include "exchange/levels/holders.h"
#include "exchange/rules/combine.h"
#include "exchange/step/verdict.h"
#include "exchange/terms/agreement_text.h"
#include "thinwire/agreement.h"

namespace thinwire {
namespace {

// Ranks that later sit out are counted in each step: step_runner.cc.
void check_ranks(const ExchangeOptions& options, int ranks) {
  const int contributors = ranks / options.inside;
  const std::string lack =
      lack_of_ranks(make_combine(options.combine).value(), static_cast<size_t>(contributors));
  if (lack.empty()) return;
  const std::string there = options.inside == 1 ? "the group has " : "the groups inside count as ";
  throw Error(ErrorCode::kBadOption,
              "exchange: " + lack + ", and " + there + std::to_string(contributors));
}

void check_owners(const std::vector<int>& owners, size_t tensors, int ranks) {
  if (owners.empty()) return;
  THINWIRE_CHECK(owners.size() == tensors, "exchange: " + std::to_string(owners.size()) +
                                               " owners for " + std::to_string(tensors) +
                                               " tensors");
  for (const int owner : owners)
    THINWIRE_CHECK(owner >= 0 && owner < ranks, "exchange: rank " + std::to_string(owner) +
                                                    " is to own a tensor, of " +
                                                    std::to_string(ranks) + " ranks");
}

void check_names(const std::vector<TensorSpec>& tensors) {
  std::set<std::string_view> names;
  for (const TensorSpec& tensor : tensors)
    THINWIRE_CHECK(names.insert(tensor.name).second,
                   "exchange: two tensors are named '" + tensor.name + "'");
}

}  // namespace

Sections check_for_group(const ExchangeOptions& options, const std::vector<TensorSpec>& tensors,
                         int ranks) {
  check_names(tensors);
  Sections sections = resolve_sections(options, tensors, options.first_step).value();
  check_groups(options.inside, ranks);
  check_grid(options.columns, ranks);
  check_ranks(options, ranks / options.columns);
  check_owners(options.owners, tensors.size(), ranks);
  return sections;
}

const std::vector<AutoDecision>& Exchange::decisions() const noexcept {
  static const std::vector<AutoDecision> kNone;
  return kNone;
}

std::unique_ptr<Exchange> make_exchange(Group& group, Store& store, std::vector<TensorSpec> tensors,
                                        const ExchangeOptions& options) {
  check_rank_count(group, "exchange");
  const Shapes shapes = options.columns > 1 ? Shapes::kAny : Shapes::kSame;
  require_agreement(group, "exchange", agreement_text(options, tensors, shapes));

  // From here on every rank finds the same mistakes, except in what its store holds.
  const Sections sections = check_for_group(options, tensors, group.size());
  Channels channels = split_levels(group, options);
  if (options.columns > 1)
    together(group, [&] {
      require_agreement(*channels.between, "exchange: a column", agreement_text(options, tensors));
    });
  std::unique_ptr<Runner> runner;
  on_all(group, "made",
         [&] { runner = make_runner(sections, options, tensors, std::move(channels), store); });
  runner->compare_shared(group);
  auto exchange = std::make_unique<ThreadedExchange>(group, store, std::move(tensors), options,
                                                     sections, std::move(runner));
  exchange->set_step(options.first_step);
  return exchange;
}

std::unique_ptr<Exchange> join_exchange(Group& group, Store& store, std::vector<TensorSpec> tensors,
                                        const ExchangeOptions& options, Regrouped* how) {
  auto exchange = std::make_unique<ThreadedExchange>(store, std::move(tensors), options);
  Regrouped regrouped = exchange->regroup(group, options.generation);
  if (how != nullptr) *how = std::move(regrouped);
  return exchange;
}

}  // namespace thinwire
