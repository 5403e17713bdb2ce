// TextSet: cuts a text into sequences of characters or words.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/text_set.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/check.h"
#include "train/data/compressed_file.h"
#include "train/data/sample_ids.h"

namespace thinwire {
namespace {

class TextSet final : public Dataset {
 public:
  TextSet(std::shared_ptr<const Text> text, uint64_t begin, uint64_t count, int64_t sequence)
      : text_(std::move(text)), begin_(begin), count_(count), sequence_(sequence) {}

  uint64_t size() const override { return count_; }

  Batch fetch(std::span<const uint64_t> ids, const FetchContext& /*context*/) const override {
    check_ids(ids, count_);
    const auto samples = static_cast<int64_t>(ids.size());
    Batch batch{.inputs = torch::empty({samples, sequence_}, torch::kLong),
                .targets = torch::empty({samples, sequence_}, torch::kLong)};
    int64_t* inputs = batch.inputs.mutable_data_ptr<int64_t>();
    int64_t* targets = batch.targets.mutable_data_ptr<int64_t>();
    for (const uint64_t id : ids) {
      const int32_t* from =
          text_->codes.const_data_ptr<int32_t>() + begin_ + id * static_cast<uint64_t>(sequence_);
      inputs = std::copy_n(from, sequence_, inputs);
      targets = std::copy_n(from + 1, sequence_, targets);
    }
    return batch;
  }

 private:
  std::shared_ptr<const Text> text_;
  uint64_t begin_;
  uint64_t count_;
  int64_t sequence_;
};

}  // namespace

Text read_characters(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path);
  std::array<bool, 256> present{};
  for (const std::byte byte : bytes) present[std::to_integer<size_t>(byte)] = true;
  Text text;
  std::array<int32_t, 256> code{};
  for (size_t byte = 0; byte < 256; ++byte)
    if (present[byte]) code[byte] = static_cast<int32_t>(text.alphabet++);
  if (text.alphabet < 2)
    throw Error(ErrorCode::kCorrupt, path + ": fewer than two distinct characters");
  text.codes = torch::empty({static_cast<int64_t>(bytes.size())}, torch::kInt);
  std::ranges::transform(bytes, text.codes.mutable_data_ptr<int32_t>(),
                         [&](std::byte byte) { return code[std::to_integer<size_t>(byte)]; });
  text.train = bytes.size() * 9 / 10;
  return text;
}

std::shared_ptr<const Dataset> make_text_set(std::shared_ptr<const Text> text, uint64_t begin,
                                             uint64_t count, int64_t sequence) {
  const auto tokens = static_cast<uint64_t>(text->codes.numel());
  THINWIRE_CHECK(
      sequence > 0 && begin <= tokens && count <= count_sequences(tokens - begin, sequence),
      "text set: not that many sequences");
  return std::make_shared<TextSet>(std::move(text), begin, count, sequence);
}

}  // namespace thinwire
