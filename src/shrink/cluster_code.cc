// One routine codes and reads: an encoder returns the bit that it is given, a decoder the bit that
// it reads.
// SPDX-License-Identifier: Apache-2.0
#include "shrink/cluster_code.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>

#include "shrink/range_coder.h"

namespace thinwire {
namespace {

// Steps beyond which it is expected alike whether a number moves further.
constexpr size_t kSteps = 16;

class NumberModel {
 public:
  explicit NumberModel(uint32_t count)
      : count_(count),
        width_(std::bit_width(count - 1)),
        alone_{std::vector<BitModel>(size_t{1} << width_),
               std::vector<BitModel>(size_t{1} << width_)},
        changes_(count) {}

  // By the bits of the number, the highest first. Small values have small neighbours.
  template <typename Coder>
  uint32_t code(Coder& coder, uint32_t number) {
    std::vector<BitModel>& models = alone_[last_is_pruned_];
    uint32_t node = 1;
    for (int bit = width_ - 1; bit >= 0; --bit)
      node = node << 1 | static_cast<uint32_t>(coder.code(models[node], (number >> bit & 1) != 0));
    const uint32_t coded = node - (1u << width_);
    last_is_pruned_ = coded == count_ / 2;
    return coded;
  }

  // By the change since `before`. A decoder may return a number that is not below the count.
  template <typename Coder>
  uint32_t code_change(Coder& coder, uint32_t number, uint32_t before) {
    ChangeModel& model = changes_[before];
    last_changed_ = coder.code(model.changed[last_changed_], number != before);
    if (!last_changed_) return before;
    const bool rises = coder.code(model.rises, number > before);
    const uint32_t most = rises ? count_ - 1 - before : before;
    const uint32_t far = number > before ? number - before : before - number;
    uint32_t steps = 1;
    while (coder.code(model.further[rises][std::min<size_t>(steps, kSteps) - 1], steps < far)) {
      if (++steps > most) return count_;
    }
    if (steps > most) return count_;
    return rises ? before + steps : before - steps;
  }

 private:
  struct ChangeModel {
    std::array<BitModel, 2> changed;
    BitModel rises;
    std::array<std::array<BitModel, kSteps>, 2> further;
  };

  uint32_t count_;
  int width_;
  std::array<std::vector<BitModel>, 2> alone_;
  std::vector<ChangeModel> changes_;
  bool last_is_pruned_ = false, last_changed_ = false;
};

}  // namespace

std::vector<std::byte> code_numbers(std::span<const uint16_t> numbers, uint32_t count,
                                    std::span<const uint16_t> before) {
  NumberModel model(count);
  RangeEncoder encoder;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (before.empty())
      model.code(encoder, numbers[i]);
    else
      model.code_change(encoder, numbers[i], before[i]);
  }
  return encoder.finish();
}

Status read_numbers(std::span<const std::byte> coded, uint32_t count,
                    std::span<const uint16_t> before, uint64_t values,
                    std::vector<uint16_t>& numbers) {
  constexpr uint64_t kFirstPiece = 1 << 16;
  const Status other_bytes =
      Status::fail(ErrorCode::kCorrupt, "cluster numbers are cut or followed by other bytes");
  NumberModel model(count);
  RangeDecoder decoder(coded);
  numbers.clear();
  for (uint64_t i = 0; i < values;) {
    if (decoder.is_past_end()) return other_bytes;
    const uint64_t end = std::min(values, std::max(kFirstPiece, 2 * i));
    numbers.reserve(end);
    numbers.resize(end);
    for (; i < end; ++i) {
      const uint32_t number =
          before.empty() ? model.code(decoder, 0) : model.code_change(decoder, 0, before[i]);
      if (number >= count)
        return Status::fail(ErrorCode::kCorrupt, "a value belongs to a cluster that is not there");
      numbers[i] = static_cast<uint16_t>(number);
    }
  }
  return decoder.is_at_end() ? Status::ok() : other_bytes;
}

}  // namespace thinwire
