// LevelsRunner: a step of a hierarchy: sums inside groups, an exchange between them, the way back.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exchange/levels/holders.h"
#include "exchange/levels/inside_level.h"
#include "exchange/runner/runner.h"
#include "exchange/runner/step_runner.h"
#include "exchange/step/stopwatch.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/store.h"

namespace thinwire {

// Ranks [k g, (k + 1) g) are group k. Those at the same place of all groups hold the same tensors,
// and exchange them as an exchange of their own does, in which a rank stands for its group: codecs,
// memories, methods and their results are those of as many ranks as there are groups. A rank sends
// its values of other tensors to their holders in its group, and gets the means from them.
class LevelsRunner final : public Runner {
 public:
  // Drops what Store::load gave `store` of tensors that other ranks of the group hold: they have
  // it, too.
  LevelsRunner(const Sections& sections, const ExchangeOptions& options,
               const std::vector<TensorSpec>& tensors, Channels channels, Store& store);

  Group& channel() noexcept override { return *all_; }
  const Plan& plan() const noexcept override { return inside_.plan(); }
  const std::vector<StreamSpec>& streams() const noexcept override { return between_.streams(); }
  std::vector<OwnedRange> owned(size_t /*rank*/) const override { return {}; }
  void compare_shared(Group& group) override;

  void set_momentum(std::span<const Momentum> of_tensors) override;
  void check_change(const Sections& sections) const override;
  void change(const Sections& sections) override;
  std::vector<bool> owners_owe() override;
  void set_weight(double weight) override { between_.set_weight(weight); }
  void abstain(Abstention what) override;
  void set_weighted(bool weighted) override { between_.set_weighted(weighted); }

  void begin(uint64_t step) override;
  bool may_begin() const noexcept override { return true; }
  void open(size_t tensor, const TensorView& view) override { inside_.open(tensor, view); }
  void begin_bucket(size_t bucket) override;
  bool advance() override;
  bool idle() const noexcept override;
  std::string awaited() const override;
  bool awaits_owner() const noexcept override;
  StepReport end() override;

 private:
  void arrange(const Sections& sections);
  void leave_to_others(Store& store) const;
  bool begin_between();
  bool has_means(size_t bucket) const noexcept;
  bool between_done() const noexcept;
  uint64_t fault_word() const noexcept;

  size_t group_size() const noexcept { return static_cast<size_t>(inside_.group().size()); }
  size_t place() const noexcept { return static_cast<size_t>(inside_.group().rank()); }

  const ExchangeOptions options_;
  const std::vector<TensorSpec> tensors_;
  const std::unique_ptr<Group> all_;
  const std::vector<size_t> holder_of_;  // by tensor
  Holding held_;                         // of this rank
  InsideLevel inside_;
  StepRunner between_;

  size_t section_count_ = 0;  // of the exchange
  // By bucket between groups: the tensors that it is the first to need.
  std::vector<std::vector<size_t>> tensors_of_;
  std::vector<std::string> streams_;  // of all holders, one holder after another
  std::vector<size_t> first_stream_;  // of each place, in streams_
  std::vector<size_t> stream_of_;     // by tensor, in streams_

  bool asks_to_skip_ = false;  // the next step
  size_t begun_ = 0;           // buckets inside
  size_t begun_between_ = 0;   // buckets between groups
  bool handing_out_ = false;
  uint64_t inside_before_ = 0, inside_received_before_ = 0;  // bytes
  Clock::time_point first_send_, last_receive_;
};

}  // namespace thinwire
