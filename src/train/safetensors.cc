// Writes and reads safetensors; everything in a file is checked before it is used.
// SPDX-License-Identifier: Apache-2.0
#include "train/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/bytes.h"

namespace thinwire {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";
// Metadata keys of the names, one per line, of arrays that are not copied on a resize.
struct MarkRow {
  OnResize on_resize;
  const char* key;
};
constexpr MarkRow kMarks[] = {{OnResize::kOwedToMean, "thinwire.owed_to_mean"},
                              {OnResize::kJoin, "thinwire.joined"},
                              {OnResize::kShared, "thinwire.shared"}};

struct TypeRow {
  StateType type;
  const char* name;
};
constexpr TypeRow kTypes[] = {{StateType::kFloat32, "F32"},
                              {StateType::kFloat64, "F64"},
                              {StateType::kInt64, "I64"},
                              {StateType::kUint8, "U8"}};

const char* name_of(StateType type) {
  for (const TypeRow& row : kTypes)
    if (row.type == type) return row.name;
  return "";
}

std::optional<uint64_t> whole(const Json& json) {
  if (!json.is_number_unsigned()) return std::nullopt;
  return json.get<uint64_t>();
}

// One entry of the header without its data; `begin` and `end` are its offsets. Empty: no fault.
std::string read_entry(const Json& entry, StateArray& array, uint64_t& begin, uint64_t& end) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets"))
    return "has no dtype, shape or data_offsets";
  const auto row = std::find_if(std::begin(kTypes), std::end(kTypes),
                                [&](const TypeRow& t) { return entry["dtype"] == t.name; });
  if (row == std::end(kTypes)) return "has a type other than F32, F64, I64, U8";
  array.type = row->type;

  if (!entry["shape"].is_array()) return "has no shape";
  uint64_t size = size_of(array.type);
  for (const Json& extent : entry["shape"]) {
    const auto number = whole(extent);
    if (!number || __builtin_mul_overflow(size, *number, &size)) return "has an impossible shape";
    array.shape.push_back(*number);
  }
  const Json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !whole(offsets[0]) || !whole(offsets[1]))
    return "has no offsets";
  begin = *whole(offsets[0]);
  end = *whole(offsets[1]);
  if (begin > end || end - begin != size) return "is not as long as its shape says";
  return {};
}

Status read_metadata(const std::string& origin, const Json& json, TensorFile& file) {
  const auto fail = [&] {
    return Status::fail(ErrorCode::kCorrupt, origin + ": metadata must be texts");
  };
  if (!json.is_object()) return fail();
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return fail();
    file.metadata[key] = value.get<std::string>();
  }
  return Status::ok();
}

// Before anything is copied, so that many names for the same bytes cannot fill the memory.
Status check_cover(const std::string& origin, std::vector<std::pair<uint64_t, uint64_t>> ranges,
                   uint64_t size) {
  std::sort(ranges.begin(), ranges.end());
  uint64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered)
      return Status::fail(ErrorCode::kCorrupt, origin + ": tensors overlap or leave gaps");
    covered = end;
  }
  if (covered != size)
    return Status::fail(ErrorCode::kCorrupt, origin + ": bytes follow the last tensor");
  return Status::ok();
}

// Takes one kind of mark out of the metadata.
void take_marks(const MarkRow& row, TensorFile& file) {
  const auto found = file.metadata.find(row.key);
  if (found == file.metadata.end()) return;
  const std::string names = '\n' + found->second + '\n';
  for (StateArray& array : file.arrays)
    if (names.find('\n' + array.name + '\n') != std::string::npos) array.on_resize = row.on_resize;
  file.metadata.erase(found);
}

// The names of arrays with this mark, one per line.
std::string marked(const MarkRow& row, const std::vector<StateArray>& arrays) {
  std::string names;
  for (const StateArray& array : arrays)
    if (array.on_resize == row.on_resize) names += (names.empty() ? "" : "\n") + array.name;
  return names;
}

}  // namespace

std::vector<std::byte> write_safetensors(const TensorFile& file) {
  std::vector<const StateArray*> order;
  for (const StateArray& array : file.arrays) order.push_back(&array);
  std::stable_sort(order.begin(), order.end(), [](const StateArray* a, const StateArray* b) {
    return size_of(a->type) > size_of(b->type);
  });

  Json header = Json::object();
  Json& metadata = header[std::string(kMetadata)] = Json::object();
  for (const auto& [key, value] : file.metadata) metadata[key] = value;
  for (const MarkRow& row : kMarks)
    if (const std::string names = marked(row, file.arrays); !names.empty())
      metadata[row.key] = names;
  uint64_t offset = 0;
  for (const StateArray* array : order) {
    const uint64_t end = offset + array->data.size();
    header[array->name] = {
        {"dtype", name_of(array->type)}, {"shape", array->shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');

  std::vector<std::byte> bytes(sizeof(uint64_t) + text.size() + offset);
  ByteWriter writer(bytes);
  writer.put<uint64_t>(text.size());
  writer.put_bytes(std::as_bytes(std::span(text)));
  for (const StateArray* array : order) writer.put_bytes(array->data);
  return bytes;
}

Result<TensorFile> read_safetensors(const std::string& origin, std::span<const std::byte> bytes) {
  const auto fail = [&](ErrorCode code, const std::string& why) {
    return Status::fail(code, origin + ": " + why);
  };
  ByteReader reader(bytes);
  const auto header_size = reader.get<uint64_t>();
  if (!reader.ok() || header_size > std::min<uint64_t>(kMaxHeader, reader.remaining()))
    return fail(ErrorCode::kBadLength, "truncated, or not a safetensors file");
  const auto text = reader.take(header_size);
  const auto data = reader.take(reader.remaining());

  const auto* chars = reinterpret_cast<const char*>(text.data());
  const Json header = Json::parse(chars, chars + text.size(), nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return fail(ErrorCode::kCorrupt, "the header is not JSON");

  TensorFile file;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) {
      if (Status status = read_metadata(origin, entry, file); !status) return status;
      continue;
    }
    StateArray array{.name = name, .shape = {}, .data = {}};
    uint64_t begin = 0, end = 0;
    if (const std::string fault = read_entry(entry, array, begin, end); !fault.empty())
      return fail(ErrorCode::kCorrupt, "tensor '" + name + "' " + fault);
    if (end > data.size())
      return fail(ErrorCode::kBadLength, "truncated: tensor '" + name + "' ends at byte " +
                                             std::to_string(end) + " of " +
                                             std::to_string(data.size()));
    ranges.emplace_back(begin, end);
    file.arrays.push_back(std::move(array));
  }
  if (Status status = check_cover(origin, ranges, data.size()); !status) return status;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto from = data.subspan(ranges[i].first, ranges[i].second - ranges[i].first);
    file.arrays[i].data.assign(from.begin(), from.end());
  }
  for (const MarkRow& row : kMarks) take_marks(row, file);
  return file;
}

}  // namespace thinwire
