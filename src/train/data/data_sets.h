// Data sets by name, read once per process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/torch.h"
#include "train/data/wrong_labels.h"
#include "train/sample_shape.h"

namespace thinwire {

// 0 stands for all, or for the data set's own default.
struct DataRequest {
  std::string name = "fashion-mnist";
  std::string folder = {};     // the user's data folder; may be empty
  uint64_t hold_out = 0;       // the last training samples, kept from training
  uint64_t train_samples = 0;  // only the first so many, for short runs
  uint64_t test_samples = 0;   // likewise; of what is held out, too
  bool augment = false;        // cifar10: pad, crop and flip
  int64_t crop = 0;            // images: pixels a side that are seen; default: all
  int64_t sequence = 0;        // texts: tokens per sample; default 64
  double wrong_labels = 0;     // not for texts: share of training labels that are made wrong
  uint64_t wrong_labels_seed = 0;
};

// How the floats of images stand for bytes: byte / 255 = value x deviation + mean, by channel.
struct PixelScale {
  std::vector<float> mean;
  std::vector<float> deviation;
};

struct DataSplits {
  SampleShape shape;
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;      // the published test data
  std::shared_ptr<const Dataset> held_out;  // null without hold_out
  PixelScale pixels = {};                   // of images
  WrongLabels wrong = {};                   // in `train`
};

// The data sets each of whose samples has a label, one of a few classes; the others are texts.
std::vector<std::string_view> labelled_data_sets();

// Whether samples of the data set of that name have columns of categories.
bool has_categories(std::string_view name);

// Throws Error: kUnknownName with the known names, kBadOption for a setting that the data set does
// not have. Reads nothing.
void check_data_request(const DataRequest& request);

// Finds, reads and checks a data set. What was read stays in memory while any of its splits lives,
// and is shared by all that ask for it: ranks may be threads. Safe to call from any thread. Throws
// Error: kUnknownName with the known names, kBadOption for a request that the data set cannot
// fulfil, kIo for a missing file with the places looked at, kCorrupt for a broken one.
DataSplits make_data_set(const DataRequest& request);

}  // namespace thinwire
