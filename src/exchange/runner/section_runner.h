// SectionRunner: runs one section: its method, its schedule of codecs, and what its owners still
// owe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/codec_schedule.h"
#include "exchange/methods/method.h"
#include "exchange/state/critical_regime.h"
#include "exchange/state/global_threshold.h"
#include "exchange/state/owner_memory.h"
#include "exchange/terms/sections.h"

namespace thinwire {

// Follows the schedule of codecs: whatever a step leaves is already that of the next step's codec.
// Used by one thread at a time.
class SectionRunner {
 public:
  // What all sections of an exchange share; outlives them.
  struct Shared {
    StepContext& context;
    const Streams& streams;
    Store& store;
    Roster* const& roster;  // may be another, or null, in the next step
  };

  // The section's buckets are those of tags [first_tag, first_tag + 2 x buckets.size()).
  SectionRunner(const Section& section, std::vector<Bucket> buckets, int first_tag,
                const Shared& shared);

  Method& method() noexcept { return *method_; }
  const Method& method() const noexcept { return *method_; }

  // Whether owners keep, or are about to give back, what could not be handed out.
  bool owners_owe() const;

  // The codec of a stream, in the step with which the options of `section` begin, and its regime,
  // opened in `store`; null: it has none.
  struct StreamTerms {
    Terms terms;
    CriticalRegime* regime = nullptr;
  };
  static StreamTerms terms_of(const Section& section, const PlannedStream& stream, Store& store);

  // In the store: the threshold that its streams have together; empty without one.
  const std::string& threshold_key() const noexcept { return threshold_key_; }

  // All ranks agreed on the schedule and count the same steps: none needs to be told.
  void follow_schedule(uint64_t step);

  void end(bool skipped);

  // Between two steps, of which `step` is the second: where there is a roster now, or none any
  // more.
  void remake_method(uint64_t step);

 private:
  // What the schedule has in a step: the codecs in critical regimes and outside, and what tells
  // these regimes apart.
  struct Codecs {
    std::string critical, other;
    std::optional<RegimeRule> rule;
    bool operator==(const Codecs&) const = default;
  };
  Codecs codecs_at(uint64_t step) const;
  std::vector<bool> critical_streams() const;
  void follow_regimes(uint64_t step);
  void open_threshold();
  void make_method(const Terms& terms);
  void take_over_debts(const Terms& terms);
  void end_debts(bool skipped);

  const ExchangeOptions options_;
  const std::shared_ptr<const Combine> combine_;  // the same for all codecs; methods refer to it
  const CodecSchedule schedule_;
  Codecs codecs_;
  std::vector<bool> critical_;  // of each stream, whether its codec is that of critical regimes
  const std::vector<Bucket> buckets_;
  const int first_tag_;
  const Shared shared_;
  std::vector<ActiveStream*> streams_;  // its own
  std::string threshold_key_;           // of Grouping::kGlobal
  GlobalThreshold* threshold_ = nullptr;
  std::unique_ptr<Method> method_;

  // What owners owe of a stream that has no owners any more.
  struct Debt {
    ActiveStream* stream;
    std::string key;  // in the store
    OwnerMemory* memory;
  };
  std::vector<Debt> debts_;
};

}  // namespace thinwire
