// The keys of the tables data and model of a recipe.
// SPDX-License-Identifier: Apache-2.0
#include "train/recipe_tables.h"

namespace thinwire {

std::vector<OptionInfo> data_keys() {
  using enum OptionType;
  return {
      {.name = "data.name",
       .type = kChoice,
       .fallback = "fashion-mnist",
       .choices = {"fashion-mnist", "mnist", "cifar10", "shakespeare", "wikitext-2",
                   "spoken-digits", "adult"},
       .help = "data set to train and test on"},
      {.name = "data.hold_out",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = kMany,
       .unit = "samples",
       .help = "last training samples that are not trained on but evaluated besides the test data"},
      {.name = "data.train_samples",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = kMany,
       .unit = "samples",
       .help = "train on the first so many only; 0: all"},
      {.name = "data.test_samples",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = kMany,
       .unit = "samples",
       .help = "test on the first so many only; 0: all"},
      {.name = "data.augment",
       .type = kFlag,
       .fallback = "false",
       .help = "cifar10: pad by four unless data.crop is set, crop at random, flip at random"},
      {.name = "data.crop",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 65536,
       .unit = "pixels",
       .help = "images: side of the window that is seen, the middle or with augment anywhere; 0: "
               "all of the image"},
      {.name = "data.shards",
       .type = kText,
       .fallback = "",
       .help = "dirichlet:alpha=0.5: workers have samples of their own, classes shared out "
               "unevenly; empty: all draw from all"},
      {.name = "data.sequence",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 65536,
       .unit = "tokens",
       .help = "texts: characters (shakespeare) or words (wikitext-2) of one sample; 0: 64"},
      {.name = "data.wrong_labels",
       .type = kNumber,
       .fallback = "0",
       .min = 0,
       .max = 1,
       .unit = "share",
       .help = "not for texts: plant wrong labels in this share of the training samples, for "
               "studies"},
      {.name = "data.wrong_labels_seed",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = kMany,
       .help = "which samples have wrong labels, and which"}};
}

std::vector<OptionInfo> model_keys() {
  using enum OptionType;
  return {
      {.name = "model.name",
       .type = kChoice,
       .fallback = "mlp",
       .choices = {"mlp", "cnn-mnist", "cnn-cifar", "cnn7", "resnet8", "resnet20", "resnet18",
                   "char-lstm", "gpt-mini", "dnn-speech"},
       .help = "network"},
      {.name = "model.weights",
       .type = kText,
       .fallback = "",
       .help = "begin with these instead of new ones: a model.safetensors, or a folder that a run "
               "wrote; its tensors must fit"},
      {.name = "model.width",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 65536,
       .unit = "channels",
       .help =
           "of the first convolution of cnn7, resnet8 and resnet20, the others in proportion; 0: "
           "the network's own"},
      {.name = "model.hidden",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 65536,
       .unit = "units",
       .help = "width of the hidden layers (resnet18: channels of its first group; gpt-mini: "
               "of a token); 0: the network's own"},
      {.name = "model.layers",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 100,
       .unit = "layers",
       .help = "number of hidden layers (gpt-mini: blocks); 0: the network's own"},
      {.name = "model.embedding",
       .type = kInteger,
       .fallback = "0",
       .min = 0,
       .max = 65536,
       .unit = "values",
       .help =
           "char-lstm, mlp on tables: length of learned vectors of characters, of categories; 0: "
           "one-hot"},
      {.name = "model.activation",
       .type = kChoice,
       .fallback = "auto",
       .choices = {"auto", "relu", "sigmoid"},
       .help = "dnn-speech: auto is relu"},
      {.name = "model.dropout",
       .type = kNumber,
       .fallback = "0",
       .min = 0,
       .max = 0.95,
       .unit = "probability",
       .help = "share of activations that is dropped in training"}};
}

}  // namespace thinwire
