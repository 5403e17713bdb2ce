// For tests: small transformers on a small text, and runs of them whose ranks share layers, on
// threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <functional>
#include <span>

#include "train/models/models.h"
#include "train/pipeline/pipeline_testing.h"
#include "train/toy_task.h"

namespace thinwire {

inline constexpr int64_t kTextLength = 6, kTextTokens = 7;

// Each token is the one before plus a step, which is that of the text: 1, 2 or 3, modulo 7.
class ToyText final : public Dataset {
 public:
  explicit ToyText(uint64_t size, uint64_t first = 0) : size_(size), first_(first) {}

  uint64_t size() const override { return size_; }
  Batch fetch(std::span<const uint64_t> ids, const FetchContext& /*context*/) const override {
    const auto rows = static_cast<int64_t>(ids.size());
    torch::Tensor text = torch::empty({rows, kTextLength + 1}, torch::kLong);
    for (int64_t row = 0; row < rows; ++row) {
      const auto id = static_cast<int64_t>(ids[static_cast<size_t>(row)] + first_);
      for (int64_t i = 0; i <= kTextLength; ++i)
        text[row][i] = (id + (1 + id / kTextTokens % 3) * i) % kTextTokens;
    }
    return {text.narrow(1, 0, kTextLength), text.narrow(1, 1, kTextLength)};
  }

 private:
  uint64_t size_, first_;
};

// gpt-mini with two blocks of two heads each, 64 wide, or more.
inline Task text_task(double dropout = 0, int64_t blocks = 2, int64_t width = 64) {
  return make_model(
      {.name = "gpt-mini", .hidden = width, .layers = blocks, .dropout = dropout, .seed = 11},
      {.input = {kTextLength}, .classes = kTextTokens});
}

struct TextOptions {
  Settings settings = {};  // of the recipe
  RunPlaces places = {};
  double dropout = 0;
  int64_t blocks = 2, width = 64;
  uint64_t samples = 90;  // batches of 20, the last one of 10
  uint64_t held_out = 0;
  uint64_t stop_after = UINT64_MAX;                            // steps
  std::function<void(int rank, Task& task)> change = nullptr;  // of one rank's task
};

inline StagedResult train_text(Group& group, const TextOptions& options) {
  const ToyText train(options.samples), test(21, 5), held_out(options.held_out, 9);
  return train_small(
      group, options, text_task(options.dropout, options.blocks, options.width),
      {.train = train, .test = test, .hold_out = options.held_out != 0 ? &held_out : nullptr});
}

inline StagedResult run_text(int ranks, const TextOptions& options) {
  return run_small(ranks, [&](Group& group) { return train_text(group, options); });
}

}  // namespace thinwire
