// Each data set: its files read into memory, then cut into training, held-out and test samples.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/data_sets.h"

#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "train/data/catalogue.h"
#include "train/data/image_readers.h"
#include "train/data/image_set.h"
#include "train/data/load_once.h"
#include "train/data/row_set.h"
#include "train/data/speech_set.h"
#include "train/data/table_set.h"
#include "train/data/text_set.h"

namespace thinwire {
namespace {

constexpr int64_t kSequence = 64;
constexpr int64_t kMaxSequence = 65536;

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
  splits.pixels = {.mean = train->mean, .deviation = train->deviation};
  const ImageView plain{.augment = false, .crop = request.crop};
  if (request.crop != 0) {
    for (const size_t side : {1, 2}) {
      if (request.crop > splits.shape.input[side])
        throw Error(ErrorCode::kBadOption, "data set " + request.name + ": cannot crop images of " +
                                               std::to_string(splits.shape.input[side]) +
                                               " pixels to " + std::to_string(request.crop));
      splits.shape.input[side] = request.crop;
    }
  }
  splits.train =
      make_image_set(train, 0, counts.train, {.augment = request.augment, .crop = request.crop});
  splits.test = make_image_set(test, 0, counts.test, plain);
  if (counts.held_out > 0)
    splits.held_out = make_image_set(train, counts.held_out_first, counts.held_out, plain);
  return splits;
}

DataSplits split_text(const DataRequest& request, const std::shared_ptr<const Text>& text) {
  const int64_t sequence = request.sequence == 0 ? kSequence : request.sequence;
  const auto tokens = static_cast<uint64_t>(text->codes.numel());
  const Cut counts = cut(request, count_sequences(text->train, sequence),
                         count_sequences(tokens - text->train, sequence));
  DataSplits splits;
  splits.shape = {.input = {sequence}, .classes = text->alphabet};
  splits.train = make_text_set(text, 0, counts.train, sequence);
  splits.test = make_text_set(text, text->train, counts.test, sequence);
  if (counts.held_out > 0)
    splits.held_out = make_text_set(text, counts.held_out_first * static_cast<uint64_t>(sequence),
                                    counts.held_out, sequence);
  return splits;
}

// `Pair` has Rows for training and for tests.
template <typename Pair>
DataSplits split_rows(const DataRequest& request, const std::shared_ptr<const Pair>& pair) {
  const std::shared_ptr<const Rows> train(pair, &pair->train);
  const std::shared_ptr<const Rows> test(pair, &pair->test);
  const Cut counts = cut(request, static_cast<uint64_t>(train->labels.size(0)),
                         static_cast<uint64_t>(test->labels.size(0)));
  DataSplits splits;
  splits.shape.input = train->features.sizes().slice(1).vec();
  splits.train = make_row_set(train, 0, counts.train);
  splits.test = make_row_set(test, 0, counts.test);
  if (counts.held_out > 0)
    splits.held_out = make_row_set(train, counts.held_out_first, counts.held_out);
  return splits;
}

DataSplits split_speech(const DataRequest& request,
                        const std::shared_ptr<const UtterancePair>& pair) {
  DataSplits splits = split_rows(request, pair);
  splits.shape.classes = 10;
  return splits;
}

DataSplits split_table(const DataRequest& request, const std::shared_ptr<const TablePair>& pair) {
  DataSplits splits = split_rows(request, pair);
  splits.shape.classes = 2;
  splits.shape.categories = pair->categories;
  return splits;
}

// Reads the data set unless it is in memory.
template <typename Read>
auto load(const CatalogueRow& row, const std::string& folder, Read read) {
  using Value = decltype(read(std::vector<std::string>()));
  static LoadOnce<Value> loaded;
  const std::vector<std::string> files = locate_files(row, folder);
  return loaded.get(std::string(row.name) + " " + files.front(), [&] { return read(files); });
}

DataSplits with_wrong_labels(const DataRequest& request, DataSplits splits) {
  if (request.wrong_labels == 0) return splits;
  splits.wrong = {.share = request.wrong_labels,
                  .seed = request.wrong_labels_seed,
                  .classes = splits.shape.classes};
  splits.train = plant_wrong_labels(std::move(splits.train), splits.wrong);
  return splits;
}

bool is_text(const CatalogueRow& row) {
  return row.name == "shakespeare" || row.name == "wikitext-2";
}

void refuse(const DataRequest& request, bool given, const char* setting) {
  if (given)
    throw Error(ErrorCode::kBadOption, "data set " + request.name + " has no '" + setting + "'");
}

}  // namespace

std::vector<std::string_view> labelled_data_sets() {
  std::vector<std::string_view> names;
  for (const CatalogueRow& row : catalogue())
    if (!is_text(row)) names.push_back(row.name);
  return names;
}

bool has_categories(std::string_view name) { return name == "adult"; }

void check_data_request(const DataRequest& request) {
  const CatalogueRow& row = find_data_set(request.name);
  const auto is = [&](std::string_view name) { return row.name == name; };
  refuse(request, request.augment && !is("cifar10"), "augment");
  const bool text = is_text(row);
  refuse(request, request.crop != 0 && (text || is("spoken-digits") || has_categories(row.name)),
         "crop");
  refuse(request, request.sequence != 0 && !text, "sequence");
  refuse(request, request.wrong_labels != 0 && text, "wrong_labels");
  if (request.sequence < 0 || request.sequence > kMaxSequence)
    throw Error(ErrorCode::kBadOption, "data set " + request.name + ": sequence is not in 1 .. " +
                                           std::to_string(kMaxSequence));
}

DataSplits make_data_set(const DataRequest& request) {
  check_data_request(request);
  const CatalogueRow& row = find_data_set(request.name);
  const auto is = [&](std::string_view name) { return row.name == name; };
  const auto images = [&](ImagePair (*read)(const std::vector<std::string>& files)) {
    return with_wrong_labels(request, split_images(request, load(row, request.folder, read)));
  };
  if (is("fashion-mnist")) return images(read_fashion_mnist);
  if (is("mnist")) return images(read_mnist);
  if (is("cifar10")) return images(read_cifar10);
  if (is("shakespeare")) {
    const auto read = [](const std::vector<std::string>& files) {
      return read_characters(files.at(0));
    };
    return split_text(request, load(row, request.folder, read));
  }
  if (is("wikitext-2")) {
    const auto read = [](const std::vector<std::string>& files) {
      return read_words(files.at(0), files.at(1));
    };
    return split_text(request, load(row, request.folder, read));
  }
  if (is("adult")) {
    const auto read = [](const std::vector<std::string>& files) {
      return read_adult(files.at(0), files.at(1));
    };
    return with_wrong_labels(request, split_table(request, load(row, request.folder, read)));
  }
  const auto read = [](const std::vector<std::string>& files) {
    return read_spoken_digits(files.at(0));
  };
  return with_wrong_labels(request, split_speech(request, load(row, request.folder, read)));
}

}  // namespace thinwire
