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
  int64_t down = 0;
  int64_t right = 0;
  bool flipped = false;
};

class ImageSet final : public Dataset {
 public:
  ImageSet(std::shared_ptr<const Images> images, uint64_t first, uint64_t count,
           const ImageView& view)
      : images_(std::move(images)),
        first_(first),
        count_(count),
        augment_(view.augment),
        pad_(view.crop == 0 ? kPad : 0),
        channels_(images_->pixels.size(1)),
        height_(images_->pixels.size(2)),
        width_(images_->pixels.size(3)),
        seen_height_(view.crop == 0 ? height_ : view.crop),
        seen_width_(view.crop == 0 ? width_ : view.crop),
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
    Batch batch{
        .inputs = torch::empty({samples, channels_, seen_height_, seen_width_}, torch::kFloat),
        .targets = torch::empty({samples}, torch::kLong)};
    const int64_t extent = channels_ * height_ * width_;
    const int64_t seen = channels_ * seen_height_ * seen_width_;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto image = static_cast<int64_t>(first_ + ids[i]);
      const Window window =
          context.training && augment_ ? random_window(context, ids[i]) : middle();
      copy_window(images_->pixels.const_data_ptr<uint8_t>() + image * extent, window,
                  batch.inputs.mutable_data_ptr<float>() + static_cast<int64_t>(i) * seen);
      batch.targets.mutable_data_ptr<int64_t>()[i] =
          images_->labels.const_data_ptr<int64_t>()[image];
    }
    return batch;
  }

 private:
  Window middle() const {
    return {.down = (height_ - seen_height_) / 2, .right = (width_ - seen_width_) / 2};
  }

  // Anywhere in the padded image.
  Window random_window(const FetchContext& context, uint64_t id) const {
    const RandomKey key{
        .seed = context.seed, .use = RandomUse::kAugment, .step = context.epoch, .stream = 0};
    const auto words = random_block(key, id);
    const auto place = [&](uint32_t word, int64_t side, int64_t seen) {
      const auto places = static_cast<uint64_t>(side + 2 * pad_ - seen + 1);
      return static_cast<int64_t>(uint64_t{word} * places >> 32) - pad_;
    };
    return {.down = place(words[0], height_, seen_height_),
            .right = place(words[1], width_, seen_width_),
            .flipped = words[2] >> 31 != 0};
  }

  // Pixels outside the image are 0: after normalisation, that is the mean.
  void copy_window(const uint8_t* image, const Window& window, float* out) const {
    // Columns inside the image.
    const int64_t from = std::clamp<int64_t>(-window.right, 0, seen_width_);
    const int64_t to = std::clamp<int64_t>(width_ - window.right, 0, seen_width_);
    for (const auto& table : tables_) {
      for (int64_t y = 0; y < seen_height_; ++y, out += seen_width_) {
        const int64_t row = y + window.down;
        if (row < 0 || row >= height_) {
          std::fill_n(out, seen_width_, 0.0f);
          continue;
        }
        std::fill_n(out, from, 0.0f);
        const uint8_t* pixels = image + row * width_;
        for (int64_t x = from; x < to; ++x) out[x] = table[pixels[x + window.right]];
        std::fill(out + to, out + seen_width_, 0.0f);
        if (window.flipped) std::reverse(out, out + seen_width_);
      }
      image += height_ * width_;
    }
  }

  std::shared_ptr<const Images> images_;
  uint64_t first_;
  uint64_t count_;
  bool augment_;
  int64_t pad_;
  int64_t channels_, height_, width_;
  int64_t seen_height_, seen_width_;
  std::vector<std::array<float, 256>> tables_;  // per channel
};

}  // namespace

std::shared_ptr<const Dataset> make_image_set(std::shared_ptr<const Images> images, uint64_t first,
                                              uint64_t count, const ImageView& view) {
  const auto all = static_cast<uint64_t>(images->pixels.size(0));
  const auto channels = static_cast<size_t>(images->pixels.size(1));
  THINWIRE_CHECK(first <= all && count <= all - first, "image set: not that many images");
  THINWIRE_CHECK(images->mean.size() == channels && images->deviation.size() == channels,
                 "image set: one mean and deviation per channel");
  THINWIRE_CHECK(
      view.crop >= 0 && view.crop <= std::min(images->pixels.size(2), images->pixels.size(3)),
      "image set: the window is larger than the images");
  return std::make_shared<ImageSet>(std::move(images), first, count, view);
}

}  // namespace thinwire
