// Fuzzes small models: bytes are a model or a clean error, alone and as changes since another file.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/checksum.h"
#include "core/random.h"
#include "fuzz/target.h"
#include "shrink/small_model.h"

using namespace thinwire;

namespace {

SmallModel model_of(uint64_t time) {
  const RandomKey key{.seed = time};
  SmallModel model;
  for (const size_t size : {0, 8, 200}) {
    std::vector<float> values;
    for (uint64_t i = 0; i < size; ++i)
      values.push_back(random_normal({.seed = 1}, i) + 0.05f * random_normal(key, i));
    SmallArray array{
        .exact = make_state("w" + std::to_string(size), std::span<const float>(), OnResize::kCopy)};
    array.exact.shape = {size};
    array.clusters = make_clusters(values, {.bits = size > 8 ? 3 : 1, .prune = 0.3, .keep = 0.02});
    model.push_back(std::move(array));
    model.push_back(make_half(
        make_state("h" + std::to_string(size), std::span<const float>(values), OnResize::kCopy)));
  }
  return model;
}

constexpr uint64_t kSum = 99;  // of the file before

}  // namespace

std::vector<std::vector<uint8_t>> fuzz_seeds() {
  const SmallModel before = model_of(2);
  std::vector<std::vector<uint8_t>> seeds;
  for (const SmallModel& model : {SmallModel{}, model_of(3), model_of(4), model_of(5)})
    for (const SmallModel* earlier : {static_cast<const SmallModel*>(nullptr), &before}) {
      const auto bytes = write_small_model(model, earlier, earlier != nullptr ? kSum : 0).bytes;
      const auto* from = reinterpret_cast<const uint8_t*>(bytes.data());
      seeds.emplace_back(from, from + bytes.size());
    }
  for (const std::string name : {"__metadata__", "\xC3", "w"}) {  // refused: the names, the shape
    SmallModel model = {{.exact = make_state(name, std::span<const float>(), OnResize::kCopy)}};
    model[0].exact.shape.assign(65, 0);
    const auto bytes = write_small_model(model).bytes;
    const auto* from = reinterpret_cast<const uint8_t*>(bytes.data());
    seeds.emplace_back(from, from + bytes.size());
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const SmallModel before = model_of(2);
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  for (const bool repaired : {false, true}) {
    if (repaired) {  // past the checksum, which random bytes never meet
      if (size < 8) return 0;
      const uint64_t sum = checksum(std::span(bytes).first(size - 8));
      std::memcpy(bytes.data() + size - 8, &sum, 8);
    }
    auto model = read_small_model("fuzz", bytes, &before, kSum);
    if (!model) continue;
    const bool alone = stands_alone(bytes);
    const auto again =
        write_small_model(model.value(), alone ? nullptr : &before, alone ? 0 : kSum);
    const auto read = read_small_model("again", again.bytes, &before, kSum);
    if (!read) fuzz::bug("a model that was read is not read again: " + read.status().message());
    if (expand(model.value()).is_ok() !=
        expand(read_small_model("again", again.bytes, &before, kSum).value()).is_ok())
      fuzz::bug("a model that was read expands otherwise when written again");
  }
  return 0;
}
