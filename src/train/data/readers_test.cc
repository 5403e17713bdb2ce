// Reading files: what is right is read exactly, what is wrong is refused by name.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <lzma.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "thinwire/status.h"
#include "train/data/compressed_file.h"
#include "train/data/idx_reader.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class Readers : public testing::Test {
 protected:
  Readers() : folder_(fs::path(testing::TempDir()) / ("readers" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~Readers() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }

  fs::path folder_;
};

std::string gzip(const std::string& content) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(content.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string xz(const std::string& content) {
  std::string packed(content.size() + 1000, '\0');
  size_t used = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(
                6, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(content.data()),
                content.size(), reinterpret_cast<uint8_t*>(packed.data()), &used, packed.size()),
            LZMA_OK);
  packed.resize(used);
  return packed;
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string some_text(size_t size) {
  std::string text;
  for (size_t i = 0; text.size() < size; ++i) text += std::to_string(i * i) + "\n";
  text.resize(size);
  return text;
}

template <typename Call>
void expect_error(Call call, ErrorCode code, const std::string& path, const std::string& fault) {
  try {
    call();
    ADD_FAILURE() << "no error where '" << fault << "' is expected";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(path));
    EXPECT_THAT(error.what(), HasSubstr(fault));
  }
}

TEST_F(Readers, UnpackWhatever) {
  for (const size_t size : {0u, 1u, 1000u, (1u << 20) - 1, 1u << 20, (1u << 20) + 1, 3'000'000u}) {
    const std::string text = some_text(size);
    EXPECT_EQ(text_of(read_file(write("plain", text))), text);
    EXPECT_EQ(text_of(read_file(write("text.gz", gzip(text)))), text);
    EXPECT_EQ(text_of(read_file(write("text.xz", xz(text)))), text);
  }
}

TEST_F(Readers, JoinMembersThatFollowEachOther) {
  EXPECT_EQ(text_of(read_file(write("two.gz", gzip("one ") + gzip("two")))), "one two");
  EXPECT_EQ(text_of(read_file(write("two.xz", xz("one ") + xz("two")))), "one two");
}

TEST_F(Readers, RefuseBrokenPacking) {
  const std::string text = some_text(5000);
  for (const auto& [name, packed] : {std::pair{"a.gz", gzip(text)}, std::pair{"a.xz", xz(text)}}) {
    for (size_t size = 6; size < packed.size(); size += size < 40 ? 1 : 97) {
      const std::string path = write(name, packed.substr(0, size));
      expect_error([&] { read_file(path); }, ErrorCode::kCorrupt, path, "data ends early");
    }
    const std::string tail = write(name, packed + "something else");
    expect_error([&] { read_file(tail); }, ErrorCode::kCorrupt, tail, "broken");
    std::string flipped = packed;
    flipped[packed.size() / 2] = static_cast<char>(flipped[packed.size() / 2] ^ 0x10);
    const std::string path = write(name, flipped);
    EXPECT_THROW(read_file(path), Error);
  }
}

TEST_F(Readers, RefuseTooMuch) {
  const std::string text = some_text(1000);
  for (const std::string& stored : {text, gzip(text), xz(text)}) {
    const std::string path = write("file", stored);
    EXPECT_EQ(read_file(path, 1000).size(), 1000u);
    expect_error([&] { read_file(path, 999); }, ErrorCode::kCorrupt, path, "holds more");
  }
}

TEST_F(Readers, RefuseWhatIsNoFile) {
  const std::string absent = (folder_ / "absent").string();
  expect_error([&] { read_file(absent); }, ErrorCode::kIo, absent, "No such file");
  expect_error([&] { read_file(folder_.string()); }, ErrorCode::kIo, folder_.string(),
               "Is a directory");
}

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

TEST_F(Readers, Idx) {
  const std::string header = big_endian(0x803) + big_endian(2) + big_endian(1) + big_endian(3);
  const IdxArray array = read_idx(write("good", gzip(header + "abcdef")), 3);
  EXPECT_THAT(array.shape, ElementsAre(2, 1, 3));
  EXPECT_EQ(text_of(array.values), "abcdef");

  const auto refuse = [&](const std::string& content, const std::string& fault) {
    const std::string path = write("bad", content);
    expect_error([&] { read_idx(path, 3); }, ErrorCode::kCorrupt, path, fault);
  };
  refuse("", "too short");
  refuse(header.substr(0, 15), "too short");
  refuse(header, "holds 0 values where its header says 6");
  refuse(header + "abcde", "holds 5 values");
  refuse(header + "abcdefg", "holds 7 values");
  refuse(big_endian(0x801) + header.substr(4) + "abcdef", "3 dimensions");
  refuse(big_endian(0xd03) + header.substr(4) + "abcdef", "not an IDX file of bytes");
  refuse(big_endian(0x803) + big_endian(0) + big_endian(1) + big_endian(3), "extents");
  refuse(big_endian(0x803) + big_endian(~0u) + big_endian(~0u) + big_endian(~0u), "extents");
}

}  // namespace
}  // namespace thinwire
