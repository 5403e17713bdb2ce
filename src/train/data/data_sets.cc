// Each data set: its files read into memory, then cut into training, held-out and test samples.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/data_sets.h"

#include <torch/torch.h>

#include <algorithm>

#include "train/data/catalogue.h"
#include "train/data/image_readers.h"
#include "train/data/image_set.h"
#include "train/data/load_once.h"

namespace thinwire {
namespace {

// How many samples, counted from the first of the training and of the test data.
struct Cut {
  uint64_t train = 0;
  uint64_t held_out_first = 0;
  uint64_t held_out = 0;
  uint64_t test = 0;
};

uint64_t at_most(uint64_t count, uint64_t limit) {
  return limit == 0 ? count : std::min(count, limit);
}

Cut cut(const DataRequest& request, uint64_t train, uint64_t test) {
  if (request.hold_out >= train)
    throw Error(ErrorCode::kBadOption, "data set " + request.name + ": cannot hold out " +
                                           std::to_string(request.hold_out) + " of " +
                                           std::to_string(train) + " training samples");
  const uint64_t kept = train - request.hold_out;
  return {.train = at_most(kept, request.train_samples),
          .held_out_first = kept,
          .held_out = at_most(request.hold_out, request.test_samples),
          .test = at_most(test, request.test_samples)};
}

DataSplits split_images(const DataRequest& request, const std::shared_ptr<const ImagePair>& pair) {
  // They point into the pair, and keep it alive.
  const std::shared_ptr<const Images> train(pair, &pair->train);
  const std::shared_ptr<const Images> test(pair, &pair->test);
  const Cut counts = cut(request, static_cast<uint64_t>(train->pixels.size(0)),
                         static_cast<uint64_t>(test->pixels.size(0)));
  DataSplits splits;
  splits.shape = {.input = train->pixels.sizes().slice(1).vec(), .classes = train->classes};
  splits.train = make_image_set(train, 0, counts.train, request.augment);
  splits.test = make_image_set(test, 0, counts.test, false);
  if (counts.held_out > 0)
    splits.held_out = make_image_set(train, counts.held_out_first, counts.held_out, false);
  return splits;
}

DataSplits make_images(const DataRequest& request, const CatalogueRow& row,
                       ImagePair (*read)(const std::vector<std::string>& files)) {
  static LoadOnce<ImagePair> loaded;
  const std::vector<std::string> files = locate_files(row, request.folder);
  const std::string key = std::string(row.name) + " " + files.front();
  return split_images(request, loaded.get(key, [&] { return read(files); }));
}

void refuse(const DataRequest& request, bool given, const char* setting) {
  if (given)
    throw Error(ErrorCode::kBadOption, "data set " + request.name + " has no '" + setting + "'");
}

}  // namespace

DataSplits make_data_set(const DataRequest& request) {
  const CatalogueRow& row = find_data_set(request.name);
  refuse(request, request.augment && row.name != "cifar10", "augment");
  if (row.name == "fashion-mnist") return make_images(request, row, read_fashion_mnist);
  throw Error(ErrorCode::kUnsupported, "data set " + request.name + " has no reader");
}

}  // namespace thinwire
