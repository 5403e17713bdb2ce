// Changes labels while samples are fetched.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/wrong_labels.h"

#include <torch/torch.h>

#include <utility>

#include "core/random.h"

namespace thinwire {
namespace {

class MislabelledSet final : public Dataset {
 public:
  MislabelledSet(std::shared_ptr<const Dataset> data, const WrongLabels& wrong)
      : data_(std::move(data)), wrong_(wrong) {}

  uint64_t size() const override { return data_->size(); }

  Batch fetch(std::span<const uint64_t> ids, const FetchContext& context) const override {
    Batch batch = data_->fetch(ids, context);
    batch.targets = batch.targets.clone();  // a data set may hand out its own memory
    int64_t* label = batch.targets.mutable_data_ptr<int64_t>();
    for (const uint64_t id : ids) {
      *label = (*label + wrong_.shift(id)) % wrong_.classes;
      ++label;
    }
    return batch;
  }

 private:
  std::shared_ptr<const Dataset> data_;
  WrongLabels wrong_;
};

}  // namespace

int64_t WrongLabels::shift(uint64_t id) const noexcept {
  const auto words =
      random_block({.seed = seed, .use = RandomUse::kWrongLabels, .step = 0, .stream = 0}, id);
  if (static_cast<double>(words[0]) >= share * 0x1p32) return 0;
  const auto others = static_cast<uint64_t>(classes - 1);
  return 1 + static_cast<int64_t>(uint64_t{words[1]} * others >> 32);
}

std::shared_ptr<const Dataset> plant_wrong_labels(std::shared_ptr<const Dataset> data,
                                                  const WrongLabels& wrong) {
  return std::make_shared<MislabelledSet>(std::move(data), wrong);
}

}  // namespace thinwire
