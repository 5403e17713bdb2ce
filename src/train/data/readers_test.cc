// Tests of data readers: right files are read exactly, wrong ones are refused by name.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <lzma.h>
#include <zlib.h>

#include <string>

#include "thinwire/status.h"
#include "train/data/compressed_file.h"
#include "train/data/data_test_files.h"
#include "train/data/digest.h"
#include "train/data/idx_reader.h"
#include "train/data/recordings.h"
#include "train/data/tar_reader.h"
#include "train/data/wav_reader.h"

namespace thinwire {
namespace {

using testing::ElementsAre;
using testing::FloatEq;

class Readers : public FolderTest {};

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

// Of what concerns a file, which the message must name.
template <typename Call>
void expect_file_error(Call call, ErrorCode code, const std::string& path,
                       const std::string& fault) {
  expect_error(call, code, fault);
  expect_error(call, code, path);
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
      expect_file_error([&] { read_file(path); }, ErrorCode::kCorrupt, path, "data ends early");
    }
    const std::string tail = write(name, packed + "something else");
    expect_file_error([&] { read_file(tail); }, ErrorCode::kCorrupt, tail, "broken");
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
    expect_file_error([&] { read_file(path, 999); }, ErrorCode::kCorrupt, path, "holds more");
  }
}

TEST_F(Readers, RefuseWhatIsNoFile) {
  const std::string absent = (folder_ / "absent").string();
  expect_file_error([&] { read_file(absent); }, ErrorCode::kIo, absent, "No such file");
  expect_file_error([&] { read_file(folder_.string()); }, ErrorCode::kIo, folder_.string(),
                    "Is a directory");
}

TEST_F(Readers, Idx) {
  const std::string header = big_endian(0x803) + big_endian(2) + big_endian(1) + big_endian(3);
  const IdxArray array = read_idx(write("good", gzip(header + "abcdef")), 3);
  EXPECT_THAT(array.shape, ElementsAre(2, 1, 3));
  EXPECT_EQ(text_of(array.values), "abcdef");

  const auto refuse = [&](const std::string& content, const std::string& fault) {
    const std::string path = write("bad", content);
    expect_file_error([&] { read_idx(path, 3); }, ErrorCode::kCorrupt, path, fault);
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

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST_F(Readers, Tar) {
  const std::string long_text = some_text(1000);
  const std::string archive = tar_entry("folder/", "", '5') + tar_entry("folder/a.txt", "abc") +
                              tar_entry("pax", "30 mtime=1", 'x') + tar_entry("empty", "") +
                              tar_entry("b", long_text) + tar_entry("c", std::string(512, 'c'));
  const std::string whole = archive + kTarEnd;
  const auto files = read_tar(bytes_of(whole), "x.tar");
  ASSERT_EQ(files.size(), 4u);
  const auto content = [&](size_t i) {
    return text_of({files[i].content.begin(), files[i].content.end()});
  };
  EXPECT_EQ(files[0].name, "folder/a.txt");
  EXPECT_EQ(content(0), "abc");
  EXPECT_EQ(files[1].name, "empty");
  EXPECT_EQ(content(1), "");
  EXPECT_EQ(content(2), long_text);
  EXPECT_EQ(content(3), std::string(512, 'c'));

  for (size_t size = 0; size <= archive.size(); size += size % 512 == 511 ? 1 : 73)
    expect_file_error([&] { read_tar(bytes_of(archive.substr(0, size)), "x.tar"); },
                      ErrorCode::kCorrupt, "x.tar", "ends early");
  const auto refuse = [&](size_t at, char value, const std::string& fault) {
    std::string bad = whole;
    bad[at] = value;
    expect_file_error([&] { read_tar(bytes_of(bad), "x.tar"); }, ErrorCode::kCorrupt, "x.tar",
                      fault);
  };
  refuse(0, 'F', "not a tar archive");
  refuse(148, '9', "not a tar archive");
  refuse(512 + 124, '7', "not a tar archive");
}

TEST_F(Readers, TarWithAHugeSize) {
  std::string header = tar_entry("a", "");
  header.replace(124, 12, "777777777777");
  unsigned sum = 8 * ' ';
  for (size_t i = 0; i < 512; ++i)
    if (i < 148 || i >= 156) sum += static_cast<unsigned char>(header[i]);
  char digits[9];
  std::snprintf(digits, sizeof digits, "%06o", sum);
  header.replace(148, 7, std::string(digits) + '\0');
  expect_error([&] { read_tar(bytes_of(header + kTarEnd), "x.tar"); }, ErrorCode::kCorrupt,
               "ends early");
}

TEST_F(Readers, Wav) {
  const std::string sound = wav({0, 16384, -32768, 32767});
  EXPECT_THAT(read_wav(bytes_of(sound), 8000, "a.wav"),
              ElementsAre(0.0f, 0.5f, -1.0f, FloatEq(32767.0f / 32768)));
  const auto refuse = [](const std::string& file, const std::string& fault) {
    expect_file_error([&] { read_wav(bytes_of(file), 8000, "a.wav"); }, ErrorCode::kCorrupt,
                      "a.wav", fault);
  };
  refuse(wav({1, 2}, 16000), "16000 Hz");
  refuse(wav({1, 2}, 8000, 2), "2 channels");
  refuse(wav({}), "holds no sound");
  refuse("", "");
  refuse("RIFF is all there is", "");
  refuse(sound.substr(0, 30), "");
}

TEST_F(Readers, RecordingsFromFolderAndArchive) {
  const std::string one = wav({1}), two = wav({2});
  write("recordings/1_theo_2.wav", two);
  write("recordings/0_theo_1.wav", one);
  write("recordings/README.md", "not a sound");
  const std::string archive =
      write("a.tar.xz", xz(tar_entry("recordings/1_theo_2.wav", two) +
                           tar_entry("recordings/README.md", "not a sound") +
                           tar_entry("recordings/0_theo_1.wav", one) + kTarEnd));
  for (const std::string& path : {(folder_ / "recordings").string(), archive}) {
    const std::vector<Recording> recordings = read_recordings(path);
    ASSERT_EQ(recordings.size(), 2u);
    EXPECT_EQ(recordings[0].name, "0_theo_1.wav");
    EXPECT_EQ(text_of(recordings[0].file), one);
    EXPECT_EQ(recordings[1].name, "1_theo_2.wav");
    EXPECT_EQ(text_of(recordings[1].file), two);
  }
  const std::string none = write("none.tar", kTarEnd);
  expect_file_error([&] { read_recordings(none); }, ErrorCode::kCorrupt, none, "no wav files");
}

TEST_F(Readers, RecordingNames) {
  const RecordingName name = parse_recording_name("7_de_la_cruz_49.wav");
  EXPECT_EQ(name.digit, 7);
  EXPECT_EQ(name.speaker, "de_la_cruz");
  EXPECT_EQ(name.index, 49);
  for (const char* bad : {"", "7.wav", "7_theo.wav", "x_theo_1.wav", "10_theo_1.wav", "7_theo_.wav",
                          "7_theo_1x.wav", "7_theo_-1.wav", "7_theo_1"})
    expect_file_error([&] { parse_recording_name(bad); }, ErrorCode::kCorrupt, bad, "not called");
}

// The examples of FIPS 180.
TEST_F(Readers, Digests) {
  EXPECT_EQ(digest_of(bytes_of("abc"), DigestKind::kSha256),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of(bytes_of("abc"), DigestKind::kSha1),
            "a9993e364706816aba3e25717850c26c9cd0d89d");
}

}  // namespace
}  // namespace thinwire
