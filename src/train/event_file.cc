// EventFile: records, their checksums, and the fields of events.
// SPDX-License-Identifier: Apache-2.0
#include "train/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <string_view>

#include "thinwire/status.h"

namespace thinwire {
namespace {

const std::string kPrefix = "events.out.tfevents.";  // TensorBoard looks for "tfevents"
const std::string kSuffix = ".thinwire";             // tells them from files of other writers

static_assert(std::endian::native == std::endian::little);

// Of the polynomial of Castagnoli, bits reversed.
constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t rest = i;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0x82F63B78u : 0);
    table[i] = rest;
  }
  return table;
}

// TFRecord's masked checksum: rotated, and moved by a constant.
uint32_t masked_crc(std::string_view bytes) {
  static constexpr auto kTable = crc_table();
  uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return std::rotr(~crc, 15) + 0xA282EAD8u;
}

template <typename Number>
std::string bytes_of(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  return bytes + static_cast<char>(number);
}

// Protobuf's encoding: a field is (number << 3 | type), then its bytes.
enum class Type : uint8_t { kVarint = 0, kDouble = 1, kBytes = 2, kFloat = 5 };

std::string field(int number, Type type, const std::string& bytes) {
  std::string tag(1, static_cast<char>(number << 3 | static_cast<int>(type)));
  return tag + (type == Type::kBytes ? varint(bytes.size()) : "") + bytes;
}

// Fields of tensorflow.Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log =
// 7.
std::string event(uint64_t step, const std::string& what) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return field(1, Type::kDouble, bytes_of(now)) + field(2, Type::kVarint, varint(step)) + what;
}

std::string file_name() {
  static int files = 0;  // of this process
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return kPrefix + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count()) +
         '.' + host.data() + '.' + std::to_string(getpid()) + '.' + std::to_string(files++) +
         kSuffix;
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, uint64_t resumed_step)
    : path_(folder / file_name()), file_(path_, std::ios::binary) {
  record(event(0, field(3, Type::kBytes, "brain.Event:2")));
  // SessionLog with status = 1, START.
  if (resumed_step > 0)
    record(event(resumed_step + 1, field(7, Type::kBytes, field(1, Type::kVarint, varint(1)))));
  flush();
}

void EventFile::add(uint64_t step, const Scalars& scalars) {
  std::string summary;  // repeated value = 1, each with tag = 1 and simple_value = 2
  for (const auto& [tag, value] : scalars)
    summary += field(
        1, Type::kBytes,
        field(1, Type::kBytes, tag) + field(2, Type::kFloat, bytes_of(static_cast<float>(value))));
  record(event(step, field(5, Type::kBytes, summary)));
}

void EventFile::record(const std::string& bytes) {
  const std::string length = bytes_of(uint64_t{bytes.size()});
  file_ << length << bytes_of(masked_crc(length)) << bytes << bytes_of(masked_crc(bytes));
  if (!file_) throw Error(ErrorCode::kIo, path_.string() + ": cannot be written");
}

std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix)) files.push_back(entry.path());
  }
  return files;
}

void EventFile::flush() {
  file_.flush();
  if (!file_) throw Error(ErrorCode::kIo, path_.string() + ": cannot be written");
}

}  // namespace thinwire
