// MNIST and Fashion-MNIST, images and labels in two IDX files each; CIFAR-10, all in batches.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/image_readers.h"

#include <torch/torch.h>

#include <cstring>
#include <span>

#include "train/data/cifar_reader.h"
#include "train/data/idx_reader.h"

namespace thinwire {
namespace {

constexpr int64_t kClasses = 10;

ImagePair read_pair(const std::vector<std::string>& files, float mean, float deviation) {
  return {.train = read_idx_images(files.at(0), files.at(1), mean, deviation),
          .test = read_idx_images(files.at(2), files.at(3), mean, deviation)};
}

}  // namespace

Images read_idx_images(const std::string& images, const std::string& labels, float mean,
                       float deviation) {
  const IdxArray pixels = read_idx(images, 3);
  const IdxArray classes = read_idx(labels, 1);
  const auto fail = [](const std::string& file, const std::string& fault) {
    return Error(ErrorCode::kCorrupt, file + ": " + fault);
  };
  if (classes.shape[0] != pixels.shape[0])
    throw fail(labels, std::to_string(classes.shape[0]) + " labels for " +
                           std::to_string(pixels.shape[0]) + " images");

  Images result;
  result.classes = kClasses;
  result.mean = {mean};
  result.deviation = {deviation};
  const auto extent = [&](size_t i) { return static_cast<int64_t>(pixels.shape[i]); };
  result.pixels = torch::empty({extent(0), 1, extent(1), extent(2)}, torch::kByte);
  std::memcpy(result.pixels.mutable_data_ptr<uint8_t>(), pixels.values.data(),
              pixels.values.size());
  result.labels = torch::empty({extent(0)}, torch::kLong);
  int64_t* out = result.labels.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < classes.values.size(); ++i) {
    out[i] = std::to_integer<int64_t>(classes.values[i]);
    if (out[i] >= kClasses)
      throw fail(labels, "label " + std::to_string(out[i]) + " at " + std::to_string(i) +
                             ", where there are " + std::to_string(kClasses) + " classes");
  }
  return result;
}

// Mean and deviation of pixel / 255 over the training images.
ImagePair read_fashion_mnist(const std::vector<std::string>& files) {
  return read_pair(files, 0.2860f, 0.3530f);
}
ImagePair read_mnist(const std::vector<std::string>& files) {
  return read_pair(files, 0.1307f, 0.3081f);
}

// Five training batches, then the test batch.
ImagePair read_cifar10(const std::vector<std::string>& files) {
  const std::span<const std::string> all(files);
  return {.train = read_cifar(all.first(5)), .test = read_cifar(all.subspan(5, 1))};
}

}  // namespace thinwire
