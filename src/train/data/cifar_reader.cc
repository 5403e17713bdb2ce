// CIFAR-10's binary version [Krizhevsky, 2009]: records without a header.
//
//   u8 label       0 .. 9
//   u8 pixels[3072]  32 x 32 red, then green, then blue, each row-major
//
// SPDX-License-Identifier: Apache-2.0
#include "train/data/cifar_reader.h"

#include <torch/torch.h>

#include <cstring>
#include <vector>

#include "train/data/compressed_file.h"

namespace thinwire {
namespace {

constexpr int64_t kSide = 32;
constexpr size_t kPixels = 3 * kSide * kSide;
constexpr size_t kRecord = 1 + kPixels;
constexpr int64_t kClasses = 10;

// Copies the records of one file to `pixels` and `labels`, which have room for them.
void take_apart(const std::string& file, std::span<const std::byte> records, uint8_t* pixels,
                int64_t* labels) {
  for (size_t i = 0; i < records.size() / kRecord; ++i) {
    const auto record = records.subspan(i * kRecord, kRecord);
    labels[i] = std::to_integer<int64_t>(record[0]);
    if (labels[i] >= kClasses)
      throw Error(ErrorCode::kCorrupt, file + ": label " + std::to_string(labels[i]) +
                                           " in record " + std::to_string(i) +
                                           ", where there are 10 classes");
    std::memcpy(pixels + i * kPixels, record.data() + 1, kPixels);
  }
}

}  // namespace

Images read_cifar(std::span<const std::string> files) {
  std::vector<torch::Tensor> pixels;
  std::vector<torch::Tensor> labels;
  for (const std::string& file : files) {
    const std::vector<std::byte> records = read_file(file);
    if (records.empty() || records.size() % kRecord != 0)
      throw Error(ErrorCode::kCorrupt, file + ": " + std::to_string(records.size()) +
                                           " bytes are no whole number of records of 3073");
    const auto count = static_cast<int64_t>(records.size() / kRecord);
    pixels.push_back(torch::empty({count, 3, kSide, kSide}, torch::kByte));
    labels.push_back(torch::empty({count}, torch::kLong));
    take_apart(file, records, pixels.back().mutable_data_ptr<uint8_t>(),
               labels.back().mutable_data_ptr<int64_t>());
  }
  Images images;
  images.pixels = torch::cat(pixels);
  images.labels = torch::cat(labels);
  images.classes = kClasses;
  images.mean = {0.4914f, 0.4822f, 0.4465f};  // over the 50,000 training images
  images.deviation = {0.2470f, 0.2435f, 0.2616f};
  return images;
}

}  // namespace thinwire
