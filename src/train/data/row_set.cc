// RowSet: fetches rows by their numbers.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/row_set.h"

#include <torch/torch.h>

#include <utility>

#include "core/check.h"
#include "train/data/sample_ids.h"

namespace thinwire {
namespace {

class RowSet final : public Dataset {
 public:
  RowSet(std::shared_ptr<const Rows> rows, uint64_t first, uint64_t count)
      : rows_(std::move(rows)), first_(first), count_(count) {}

  uint64_t size() const override { return count_; }

  Batch fetch(std::span<const uint64_t> ids, const FetchContext& /*context*/) const override {
    check_ids(ids, count_);
    torch::Tensor numbers = torch::empty({static_cast<int64_t>(ids.size())}, torch::kLong);
    int64_t* number = numbers.mutable_data_ptr<int64_t>();
    for (const uint64_t id : ids) *number++ = static_cast<int64_t>(first_ + id);
    return {.inputs = rows_->features.index_select(0, numbers),
            .targets = rows_->labels.index_select(0, numbers)};
  }

 private:
  std::shared_ptr<const Rows> rows_;
  uint64_t first_;
  uint64_t count_;
};

}  // namespace

std::shared_ptr<const Dataset> make_row_set(std::shared_ptr<const Rows> rows, uint64_t first,
                                            uint64_t count) {
  const auto all = static_cast<uint64_t>(rows->labels.size(0));
  THINWIRE_CHECK(first <= all && count <= all - first, "row set: not that many rows");
  return std::make_shared<RowSet>(std::move(rows), first, count);
}

}  // namespace thinwire
