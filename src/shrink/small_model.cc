// Writes models as small files, and reads them; everything in a file is checked before it is used.
// SPDX-License-Identifier: Apache-2.0
#include "shrink/small_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <set>
#include <string_view>

#include "core/bytes.h"
#include "core/checksum.h"
#include "core/utf8.h"
#include "shrink/cluster_code.h"
#include "shrink/range_coder.h"

namespace thinwire {
namespace {

constexpr uint32_t kMagic = 0x4D535754;  // "TWSM"
constexpr uint16_t kVersion = 1;
constexpr size_t kHeadSize = 20, kSumSize = 8;
constexpr int kMostDimensions = 64;  // of NumPy's arrays
constexpr uint64_t kMostExtent = std::numeric_limits<int64_t>::max();

enum class Form : uint8_t { kExact, kHalf, kClusters, kChanges };

class GrowingBytes {
 public:
  template <typename T>
  void put(const T& value) {
    put_all(std::span(&value, 1));
  }
  template <typename T, size_t kExtent>
  void put_all(std::span<T, kExtent> values) {
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Ordered, as names are chosen by who made the file, and may all have one hash.
using ArraysByName = std::map<std::string_view, const SmallArray*>;

ArraysByName by_name(const SmallModel* model) {
  ArraysByName arrays;
  if (model != nullptr)
    for (const SmallArray& array : *model) arrays.emplace(array.exact.name, &array);
  return arrays;
}

// Clusters whose numbers these can be changes of.
const Clusters* predecessor(const ArraysByName& before, const SmallArray& array) {
  const auto found = before.find(array.exact.name);
  if (found == before.end()) return nullptr;
  const SmallArray& earlier = *found->second;
  if (!earlier.clusters || earlier.exact.shape != array.exact.shape) return nullptr;
  return earlier.clusters->count() == array.clusters->count() ? &*earlier.clusters : nullptr;
}

void put_clusters(GrowingBytes& out, const Clusters& clusters, std::span<const std::byte> coded) {
  out.put(static_cast<uint16_t>(clusters.centres.size()));
  out.put_all(std::span(clusters.centres));
  out.put<uint64_t>(clusters.kept.size());
  out.put_all(std::span(clusters.kept));
  out.put<uint64_t>(coded.size());
  out.put_all(coded);
}

// Returns whether it is coded as changes.
bool put_array(GrowingBytes& out, const SmallArray& array, const ArraysByName& before) {
  const StateArray& exact = array.exact;
  std::vector<std::byte> coded;
  Form form = array.half ? Form::kHalf : Form::kExact;
  if (array.clusters) {
    form = Form::kClusters;
    const Clusters& clusters = *array.clusters;
    coded = code_numbers(clusters.numbers, clusters.count());
    const Clusters* earlier = predecessor(before, array);
    if (earlier != nullptr && !clusters.numbers.empty()) {
      auto changes = code_numbers(clusters.numbers, clusters.count(), earlier->numbers);
      if (changes.size() < coded.size()) {
        coded = std::move(changes);
        form = Form::kChanges;
      }
    }
  }
  out.put(static_cast<uint16_t>(exact.name.size()));
  out.put_all(std::span(exact.name));
  out.put(exact.type);
  out.put(exact.on_resize);
  out.put(form);
  out.put(static_cast<uint8_t>(exact.shape.size()));
  out.put_all(std::span(exact.shape));
  if (array.clusters) {
    put_clusters(out, *array.clusters, coded);
  } else if (array.half) {
    for (size_t i = 2; i < exact.data.size(); i += 4)
      out.put_all(std::span(exact.data).subspan(i, 2));
  } else {
    out.put_all(std::span(exact.data));
  }
  return form == Form::kChanges;
}

// Fails unless `size` bytes are there, before memory for what they stand for is asked for.
Status check_room(const ByteReader& reader, uint64_t size) {
  if (reader.ok() && size <= reader.remaining()) return Status::ok();
  return Status::fail(ErrorCode::kBadLength, "ends before its values do");
}

Status read_floats(ByteReader& reader, uint64_t count, std::vector<float>& out) {
  if (count > reader.remaining() / sizeof(float))
    return Status::fail(ErrorCode::kBadLength, "ends before its values do");
  const auto bytes = reader.take(count * sizeof(float));
  out.resize(count);
  if (count > 0) std::memcpy(out.data(), bytes.data(), bytes.size());
  const bool finite = std::all_of(out.begin(), out.end(), [](float v) { return std::isfinite(v); });
  return finite ? Status::ok()
                : Status::fail(ErrorCode::kCorrupt, "has a value that is not finite");
}

Status read_clusters_of(ByteReader& reader, uint64_t values, const ArraysByName& before,
                        bool changes, SmallArray& array) {
  Clusters& clusters = array.clusters.emplace();
  const auto centres = reader.get<uint16_t>();
  if (!std::has_single_bit(centres) || centres < 2 || centres > 1u << kMostClusterBits)
    return Status::fail(ErrorCode::kCorrupt, "has an impossible number of centres");
  if (Status status = read_floats(reader, centres, clusters.centres); !status) return status;
  if (Status status = read_floats(reader, reader.get<uint64_t>(), clusters.kept); !status)
    return status;
  const auto size = reader.get<uint64_t>();
  if (Status status = check_room(reader, size); !status) return status;
  // A change costs at least one bit, a number by itself always as many as it has.
  const uint64_t bits = changes ? 1 : static_cast<uint64_t>(std::bit_width(clusters.count() - 1));
  if (values > size * kMostBitsPerByte / bits)
    return Status::fail(ErrorCode::kCorrupt, "has more values than its bytes can stand for");
  std::span<const uint16_t> earlier;
  if (changes) {
    const Clusters* found = predecessor(before, array);
    if (found == nullptr)
      return Status::fail(ErrorCode::kCorrupt, "has changes of clusters that are not there");
    earlier = found->numbers;
  }
  return read_numbers(reader.take(size), clusters.count(), earlier, values, clusters.numbers);
}

Status read_array(ByteReader& reader, const ArraysByName& before, SmallArray& array) {
  StateArray& exact = array.exact;
  const auto type = reader.get<uint8_t>(), on_resize = reader.get<uint8_t>(),
             form = reader.get<uint8_t>(), dimensions = reader.get<uint8_t>();
  if (type > static_cast<uint8_t>(StateType::kUint8) ||
      on_resize > static_cast<uint8_t>(OnResize::kShared) ||
      form > static_cast<uint8_t>(Form::kChanges))
    return Status::fail(ErrorCode::kCorrupt, "has an unknown type or form");
  exact.type = static_cast<StateType>(type);
  exact.on_resize = static_cast<OnResize>(on_resize);
  if (dimensions > kMostDimensions)
    return Status::fail(ErrorCode::kCorrupt, "has more than 64 dimensions");
  uint64_t values = 1, size = 0;
  for (int i = 0; i < dimensions; ++i) {
    exact.shape.push_back(reader.get<uint64_t>());
    if (exact.shape.back() > kMostExtent ||
        __builtin_mul_overflow(values, exact.shape.back(), &values))
      return Status::fail(ErrorCode::kCorrupt, "has an impossible shape");
  }
  if (__builtin_mul_overflow(values, size_of(exact.type), &size))
    return Status::fail(ErrorCode::kCorrupt, "has an impossible shape");
  if (form == static_cast<uint8_t>(Form::kExact)) {
    if (Status status = check_room(reader, size); !status) return status;
    const auto data = reader.take(size);
    exact.data.assign(data.begin(), data.end());
    return Status::ok();
  }
  if (exact.type != StateType::kFloat32)
    return Status::fail(ErrorCode::kCorrupt, "is shortened and has no float32 values");
  if (form == static_cast<uint8_t>(Form::kHalf)) {
    if (Status status = check_room(reader, size / 2); !status) return status;
    array.half = true;
    exact.data.resize(size);
    for (size_t i = 2; i < size; i += 4) {
      const auto upper = reader.take(2);
      std::copy(upper.begin(), upper.end(), exact.data.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return Status::ok();
  }
  return read_clusters_of(reader, values, before, form == static_cast<uint8_t>(Form::kChanges),
                          array);
}

Status out_of_memory() {
  return Status::fail(ErrorCode::kBadLength, "needs more memory than there is");
}

// Fails unless other formats can hold the name too.
Status check_name(const std::string& name) {
  if (!is_utf8(name)) return Status::fail(ErrorCode::kCorrupt, "a name that is not UTF-8");
  if (name == "__metadata__")
    return Status::fail(ErrorCode::kCorrupt,
                        "the name '__metadata__', which safetensors keeps for itself");
  return Status::ok();
}

// Numbers are freed as soon as their values are there.
Status expand_one(SmallArray& small) {
  if (!small.clusters) return Status::ok();
  const Clusters clusters = std::move(*small.clusters);
  small.clusters.reset();
  std::vector<std::byte>& data = small.exact.data;
  try {
    data.resize(clusters.numbers.size() * sizeof(float));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
  return read_clusters(clusters, {reinterpret_cast<float*>(data.data()), clusters.numbers.size()});
}

}  // namespace

SmallArray make_half(StateArray array) {
  SmallArray small{.exact = std::move(array)};
  small.half = small.exact.type == StateType::kFloat32;
  if (!small.half) return small;
  for (size_t i = 0; i < small.exact.data.size(); i += 4) {
    uint32_t bits = 0;
    std::memcpy(&bits, &small.exact.data[i], 4);
    if (std::isnan(std::bit_cast<float>(bits)))
      bits |= 0x00400000;  // what makes it a NaN may be in the lower bits
    else
      bits += 0x7FFF + (bits >> 16 & 1);
    bits &= 0xFFFF0000;
    std::memcpy(&small.exact.data[i], &bits, 4);
  }
  return small;
}

Result<StateArrays> expand(SmallModel model) {
  StateArrays arrays;
  for (SmallArray& small : model) {
    if (Status status = expand_one(small); !status)
      return Status::fail(status.code(), "array '" + small.exact.name + "': " + status.message());
    arrays.push_back(std::move(small.exact));
  }
  return arrays;
}

SmallFile write_small_model(const SmallModel& model, const SmallModel* before,
                            uint64_t before_sum) {
  GrowingBytes out;
  out.put(kMagic);
  out.put(kVersion);
  out.put(uint16_t{0});
  out.put(before_sum);
  out.put(static_cast<uint32_t>(model.size()));
  bool alone = true;
  const ArraysByName earlier = by_name(before);
  for (const SmallArray& array : model) alone = !put_array(out, array, earlier) && alone;
  SmallFile file{.bytes = std::move(out.bytes()), .alone = alone};
  if (alone) std::fill_n(file.bytes.begin() + 8, 8, std::byte{0});
  const uint64_t sum = checksum(file.bytes);
  const auto bytes = std::as_bytes(std::span(&sum, 1));
  file.bytes.insert(file.bytes.end(), bytes.begin(), bytes.end());
  return file;
}

uint64_t sum_of_small_model(std::span<const std::byte> bytes) noexcept {
  uint64_t sum = 0;
  if (bytes.size() >= kSumSize) std::memcpy(&sum, bytes.last(kSumSize).data(), kSumSize);
  return sum;
}

bool is_small_model(std::span<const std::byte> bytes) noexcept {
  ByteReader reader(bytes);
  return reader.get<uint32_t>() == kMagic && reader.ok();
}

bool stands_alone(std::span<const std::byte> bytes) noexcept {
  ByteReader reader(bytes);
  const auto magic = reader.get<uint32_t>();
  reader.take(4);
  return magic == kMagic && reader.get<uint64_t>() == 0 && reader.ok();
}

Result<SmallModel> read_small_model(const std::string& origin, std::span<const std::byte> bytes,
                                    const SmallModel* before, uint64_t before_sum) {
  const auto fail = [&](ErrorCode code, const std::string& why) {
    return Status::fail(code, origin + ": " + why);
  };
  if (bytes.size() < kHeadSize + kSumSize)
    return fail(ErrorCode::kBadLength, "truncated, or not a small model of thinwire");
  ByteReader reader(bytes.first(bytes.size() - kSumSize));
  if (reader.get<uint32_t>() != kMagic)
    return fail(ErrorCode::kCorrupt, "not a small model of thinwire");
  if (reader.get<uint16_t>() != kVersion || reader.get<uint16_t>() != 0)
    return fail(ErrorCode::kUnsupported, "written by another version of thinwire");
  if (checksum(bytes.first(bytes.size() - kSumSize)) != sum_of_small_model(bytes))
    return fail(ErrorCode::kCorrupt, "damaged or truncated: its checksum is wrong");
  const auto follows = reader.get<uint64_t>();
  if (follows != 0 && before == nullptr)
    return fail(
        ErrorCode::kMismatch,
        "follows another file, which is needed to read it: the files of a checkpoint's folder are "
        "model-000.small, model-001.small and so on");
  if (follows != 0 && follows != before_sum)
    return fail(ErrorCode::kMismatch, "does not follow the file before it");

  SmallModel model;
  const ArraysByName earlier = by_name(follows != 0 ? before : nullptr);
  std::set<std::string> names;
  for (auto arrays = reader.get<uint32_t>(); arrays > 0; --arrays) {
    SmallArray array;
    const auto name = reader.take(reader.get<uint16_t>());
    array.exact.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    if (!reader.ok()) return fail(ErrorCode::kBadLength, "ends before its arrays do");
    if (const Status named = check_name(array.exact.name); !named)
      return fail(named.code(),
                  "array " + std::to_string(model.size()) + " has " + named.message());
    if (!names.insert(array.exact.name).second)
      return fail(ErrorCode::kCorrupt, "has two arrays '" + array.exact.name + "'");
    Status status = Status::ok();
    try {
      status = read_array(reader, earlier, array);
    } catch (const std::bad_alloc&) {
      status = out_of_memory();
    }
    if (status && !reader.ok()) status = Status::fail(ErrorCode::kBadLength, "ends too early");
    if (!status) return fail(status.code(), "array '" + array.exact.name + "' " + status.message());
    model.push_back(std::move(array));
  }
  if (reader.remaining() > 0) return fail(ErrorCode::kCorrupt, "bytes follow the last array");
  return model;
}

}  // namespace thinwire
