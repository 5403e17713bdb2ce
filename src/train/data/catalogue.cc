// The table of data sets, and the search for their files.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/catalogue.h"

#include <algorithm>

#include "core/named_row.h"
#include "thinwire/status.h"
#include "thinwire/trainer.h"
#include "train/data/data_places.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;

// Digests are of the content, so that it does not matter how a file is packed.
//
// Fashion-MNIST's authors publish MD5 sums of their .gz files, 8d4fb7e6c68d591d4c3dfef9ec88bf0d,
// 25c81989df183df01b3e8a0aad5dffbe, bef4ecab320f06d8554ea6380940ec79 and
// bb300cfdad3c16e7a12a480ee83cd310; Debian's package holds the same deflate streams, without the
// name and time that a gzip header may have. MNIST's .gz files have the MD5 sums
// f68b3c2dcbeaaa9fbdd348bbdeb94873, d53e105ee54ea40749a09fcbcd1e9432,
// 9fb629c4189551a2d022fa330f9573f3 and ec29112dd5afa0611ce80d1b7f02629c.
const std::vector<CatalogueRow>& rows() {
  static const std::vector<CatalogueRow> table = {
      {.name = "fashion-mnist",
       .about = "60,000 + 10,000 images of clothing, 28 x 28 grey, 10 classes",
       .origin = "Zalando Research, github.com/zalandoresearch/fashion-mnist; Debian package "
                 "dataset-fashion-mnist",
       .terms = "MIT",
       .folders = {"fashion-mnist", "fashion_mnist", "FashionMNIST/raw"},
       .suffix = ".gz",
       .files = {{"train-images-idx3-ubyte",
                  "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888", 0},
                 {"train-labels-idx1-ubyte",
                  "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9", 1},
                 {"t10k-images-idx3-ubyte",
                  "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b", 2},
                 {"t10k-labels-idx1-ubyte",
                  "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34", 3}}},
      {.name = "mnist",
       .about = "60,000 + 10,000 handwritten digits, 28 x 28 grey, 10 classes",
       .origin = "LeCun, Cortes and Burges, yann.lecun.com/exdb/mnist",
       .terms = "free for research",
       .folders = {"mnist", "MNIST/raw"},
       .suffix = ".gz",
       .files = {{"train-images-idx3-ubyte",
                  "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db", 0},
                 {"train-labels-idx1-ubyte",
                  "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5", 1},
                 {"t10k-images-idx3-ubyte",
                  "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7", 2},
                 {"t10k-labels-idx1-ubyte",
                  "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2", 3}}},
      {.name = "cifar10",
       .about = "50,000 + 10,000 photographs, 32 x 32 colour, 10 classes",
       .origin = "Krizhevsky, cs.toronto.edu/~kriz/cifar.html, binary version",
       .terms = "free for research; cite Krizhevsky, Learning Multiple Layers of Features from "
                "Tiny Images, 2009",
       .folders = {"cifar10", "cifar-10-batches-bin", "cifar-10"},
       .suffix = "",
       .files = {{"data_batch_1.bin",
                  "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5", 0},
                 {"data_batch_2.bin",
                  "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed", 1},
                 {"data_batch_3.bin",
                  "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67", 2},
                 {"data_batch_4.bin",
                  "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48", 3},
                 {"data_batch_5.bin",
                  "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add", 4},
                 {"test_batch.bin", "67eb016db431130d61cd03c7ad570b013799c88c", 5},
                 // The first 1,000 of the 10,000 test images.
                 {"test_first1000.bin",
                  "8314c96d7cd65618193bab23acdd5d4c4af15bf6dd00a1781d55beedf3be1ef5", 5}}},
      {.name = "shakespeare",
       .about = "1,115,394 characters of 65 kinds; the first 90 % to train on",
       .origin = "github.com/karpathy/char-rnn; ships with thinwire",
       .terms = "public domain",
       .folders = {"tinyshakespeare", "shakespeare"},
       .suffix = ".gz",
       .files = {{"input.txt", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
                  0}}},
      {.name = "wikitext-2",
       .about =
           "463,215 words of Wikipedia, 13,777 kinds: the published validation part to train on, "
           "the test part to test with",
       .origin = "Merity et al., Pointer Sentinel Mixture Models, 2016; valid.txt and test.txt in "
                 "github.com/pytorch/examples, word_language_model",
       .terms = "CC BY-SA",
       .folders = {"wikitext-2", "wikitext2"},
       .suffix = "",
       .files = {{"valid.txt", "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
                  0},
                 {"test.txt", "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
                  1}}},
      {.name = "spoken-digits",
       .about = "2,700 + 300 recordings of 10 digits by 6 speakers, 8 kHz",
       .origin = "Free Spoken Digit Dataset, github.com/Jakobovski/free-spoken-digit-dataset",
       .terms = "CC BY-SA 4.0",
       .folders = {"fsdd", "free-spoken-digit-dataset", "spoken-digits"},
       .suffix = "",
       .files = {{"recordings", "1801eae019c063377d98f831d3f93574f259475df7332bb0e3d1b080fb5e6959",
                  0, true},
                 {"recordings.tar",
                  "1801eae019c063377d98f831d3f93574f259475df7332bb0e3d1b080fb5e6959", 0, true}}},
      {.name = "adult",
       .about = "32,561 + 16,281 people of a census, 6 numbers and 8 categories each; whether the "
                "income is above 50,000 dollars",
       .origin = "Kohavi and Becker, UCI Machine Learning Repository, 1996; in "
                 "github.com/jbrownlee/Datasets",
       .terms = "CC BY 4.0",
       .folders = {"adult"},
       .suffix = ".gz",
       .files = {{"adult-train.csv",
                  "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", 0},
                 {"adult-test.csv",
                  "72567b94f5c1a6f8501377dd80f93892c3848ff071cf91ba47e00b0785a28074", 1}}},
  };
  return table;
}

FoundFiles look_in(const fs::path& folder, const CatalogueRow& row) {
  FoundFiles found{.folder = folder, .parts = std::vector<FoundFile>(row.files.back().part + 1)};
  for (const CatalogueFile& file : row.files) {
    FoundFile& part = found.parts[file.part];
    if (part.file != nullptr) continue;
    part.path = find_packed(folder, file.name);
    if (!part.path.empty()) part.file = &file;
  }
  return found;
}

auto count_found(const FoundFiles& files) {
  return std::ranges::count_if(files.parts, [](const auto& part) { return part.file != nullptr; });
}

}  // namespace

std::span<const CatalogueRow> catalogue() { return rows(); }

const CatalogueRow& find_data_set(std::string_view name) {
  return *find_row(rows(), "data set", name).value();
}

FoundFiles look_for(const CatalogueRow& row, const std::string& user_folder) {
  FoundFiles best{.folder = {}, .parts = std::vector<FoundFile>(row.files.back().part + 1)};
  for (const fs::path& folder : data_folders(user_folder, row.folders)) {
    FoundFiles found = look_in(folder, row);
    if (best.folder.empty() || count_found(found) > count_found(best)) best = std::move(found);
  }
  return best;
}

std::vector<std::string> missing_parts(const CatalogueRow& row, const FoundFiles& found) {
  std::vector<std::string> names;
  for (size_t part = 0; part < found.parts.size(); ++part)
    if (found.parts[part].file == nullptr)
      names.emplace_back(std::ranges::find(row.files, part, &CatalogueFile::part)->name);
  return names;
}

std::vector<std::string> locate_files(const CatalogueRow& row, const std::string& user_folder) {
  const FoundFiles found = look_for(row, user_folder);
  std::string missing;
  for (const std::string& name : missing_parts(row, found))
    missing += (missing.empty() ? "" : ", ") + name;
  if (!missing.empty())
    throw Error(ErrorCode::kIo, "data set " + std::string(row.name) + ": no " + missing + " (" +
                                    std::string(row.origin) + "); looked in " +
                                    describe_places(user_folder, row.folders) +
                                    "; --data DIR or THINWIRE_DATA names another folder, and "
                                    "`thinwire data` says how to get the files");
  std::vector<std::string> paths;
  for (const FoundFile& part : found.parts) paths.push_back(part.path.string());
  return paths;
}

}  // namespace thinwire
