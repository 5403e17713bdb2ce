// Fetching images: a table of 256 floats per channel, and one copy per row.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/image_set.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/check.h"
#include "core/random.h"
#include "train/data/sample_ids.h"

namespace thinwire {
namespace {

constexpr int64_t kPad = 4;

// Where the window lies in the original image, and whether it is mirrored.
struct Window {
  int64_t down = 0;  // -kPad .. kPad
  int64_t right = 0;
  bool flipped = false;
};

Window random_window(const FetchContext& context, uint64_t id) {
  const RandomKey key{
      .seed = context.seed, .use = RandomUse::kAugment, .step = context.epoch, .stream = 0};
  const auto words = random_block(key, id);
  const auto shift = [](uint32_t word) {
    return static_cast<int64_t>(uint64_t{word} * (2 * kPad + 1) >> 32) - kPad;
  };
  return {.down = shift(words[0]), .right = shift(words[1]), .flipped = words[2] >> 31 != 0};
}

class ImageSet final : public Dataset {
 public:
  ImageSet(std::shared_ptr<const Images> images, uint64_t first, uint64_t count, bool augment)
      : images_(std::move(images)),
        first_(first),
        count_(count),
        augment_(augment),
        channels_(images_->pixels.size(1)),
        height_(images_->pixels.size(2)),
        width_(images_->pixels.size(3)),
        tables_(static_cast<size_t>(channels_)) {
    for (size_t c = 0; c < tables_.size(); ++c) {
      for (size_t level = 0; level < 256; ++level)
        tables_[c][level] =
            (static_cast<float>(level) / 255 - images_->mean[c]) / images_->deviation[c];
    }
  }

  uint64_t size() const override { return count_; }

  Batch fetch(std::span<const uint64_t> ids, const FetchContext& context) const override {
    check_ids(ids, count_);
    const auto samples = static_cast<int64_t>(ids.size());
    Batch batch{.inputs = torch::empty({samples, channels_, height_, width_}, torch::kFloat),
                .targets = torch::empty({samples}, torch::kLong)};
    const int64_t extent = channels_ * height_ * width_;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto image = static_cast<int64_t>(first_ + ids[i]);
      const Window window =
          context.training && augment_ ? random_window(context, ids[i]) : Window{};
      copy_window(images_->pixels.const_data_ptr<uint8_t>() + image * extent, window,
                  batch.inputs.mutable_data_ptr<float>() + static_cast<int64_t>(i) * extent);
      batch.targets.mutable_data_ptr<int64_t>()[i] =
          images_->labels.const_data_ptr<int64_t>()[image];
    }
    return batch;
  }

 private:
  // Pixels outside the image are 0: after normalisation, that is the mean.
  void copy_window(const uint8_t* image, const Window& window, float* out) const {
    const int64_t from = std::clamp<int64_t>(-window.right, 0, width_);  // columns inside the image
    const int64_t to = std::clamp<int64_t>(width_ - window.right, 0, width_);
    for (const auto& table : tables_) {
      for (int64_t y = 0; y < height_; ++y, out += width_) {
        const int64_t row = y + window.down;
        if (row < 0 || row >= height_) {
          std::fill_n(out, width_, 0.0f);
          continue;
        }
        std::fill_n(out, from, 0.0f);
        const uint8_t* pixels = image + row * width_;
        for (int64_t x = from; x < to; ++x) out[x] = table[pixels[x + window.right]];
        std::fill(out + to, out + width_, 0.0f);
        if (window.flipped) std::reverse(out, out + width_);
      }
      image += height_ * width_;
    }
  }

  std::shared_ptr<const Images> images_;
  uint64_t first_;
  uint64_t count_;
  bool augment_;
  int64_t channels_, height_, width_;
  std::vector<std::array<float, 256>> tables_;  // per channel
};

}  // namespace

std::shared_ptr<const Dataset> make_image_set(std::shared_ptr<const Images> images, uint64_t first,
                                              uint64_t count, bool augment) {
  const auto all = static_cast<uint64_t>(images->pixels.size(0));
  const auto channels = static_cast<size_t>(images->pixels.size(1));
  THINWIRE_CHECK(first <= all && count <= all - first, "image set: not that many images");
  THINWIRE_CHECK(images->mean.size() == channels && images->deviation.size() == channels,
                 "image set: one mean and deviation per channel");
  return std::make_shared<ImageSet>(std::move(images), first, count, augment);
}

}  // namespace thinwire
