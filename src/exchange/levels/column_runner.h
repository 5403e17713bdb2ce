// ColumnRunner: the Runner of one column of a grid of ranks; all columns agree on each step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exchange/runner/runner.h"
#include "exchange/runner/step_runner.h"

namespace thinwire {

// Throws Error(kBadOption), naming the choices, unless `columns` columns of one length make up
// `ranks`.
void check_grid(int columns, int ranks);

// The exchange of a column is that of its ranks alone: codecs, memories, methods and results know
// nothing of other columns. Only the verdict on a step is that of all ranks, and so are questions
// whose answers must not differ between columns.
class ColumnRunner final : public Runner {
 public:
  ColumnRunner(const Sections& sections, const ExchangeOptions& options,
               const std::vector<TensorSpec>& tensors, Channels channels, Store& store);

  Group& channel() noexcept override { return *all_; }
  const Plan& plan() const noexcept override { return column_.plan(); }
  const std::vector<StreamSpec>& streams() const noexcept override { return column_.streams(); }
  std::vector<OwnedRange> owned(size_t /*rank*/) const override { return {}; }
  void compare_shared(Group& group) override;

  void set_momentum(std::span<const Momentum> of_tensors) override {
    column_.set_momentum(of_tensors);
  }
  void check_change(const Sections& sections) const override { column_.check_change(sections); }
  void change(const Sections& sections) override { column_.change(sections); }
  std::vector<bool> owners_owe() override;
  void set_weight(double weight) override { column_.set_weight(weight); }
  void abstain(Abstention what) override { column_.abstain(what); }
  void set_weighted(bool weighted) override { column_.set_weighted(weighted); }

  void begin(uint64_t step) override;
  bool may_begin() const noexcept override { return column_.may_begin(); }
  void open(size_t tensor, const TensorView& view) override { column_.open(tensor, view); }
  void begin_bucket(size_t bucket) override { column_.begin_bucket(bucket); }
  bool advance() override { return column_.advance(); }
  bool idle() const noexcept override { return column_.idle(); }
  std::string awaited() const override { return column_.awaited(); }
  bool awaits_owner() const noexcept override { return column_.awaits_owner(); }
  StepReport end() override;

 private:
  uint64_t fault_word() const noexcept;

  const std::vector<TensorSpec> tensors_;
  const std::unique_ptr<Group> all_;
  StepRunner column_;
};

}  // namespace thinwire
