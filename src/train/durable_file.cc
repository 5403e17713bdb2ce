// Writes files and folders so that they survive a power cut: open, write, fsync, rename.
// SPDX-License-Identifier: Apache-2.0
#include "train/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "thinwire/status.h"

namespace thinwire {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw Error(ErrorCode::kIo, path.string() + ": " + what + ": " + std::strerror(errno));
}

// Closes a file descriptor whatever happens.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail(path, "cannot be opened");
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

void write_durably(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(path, "cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  if (::fsync(file.get()) != 0) fail(path, "cannot be written to the disk");
}

void replace_durably(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const std::filesystem::path growing = path.string() + ".tmp";
  write_durably(growing, bytes);
  if (::rename(growing.c_str(), path.c_str()) != 0) fail(path, "cannot be replaced");
}

void sync_file(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY);
  if (::fsync(file.get()) != 0) fail(path, "cannot be written to the disk");
}

void sync_folder(const std::filesystem::path& path) {
  const Descriptor folder(path, O_RDONLY | O_DIRECTORY);
  if (::fsync(folder.get()) != 0) fail(path, "cannot be written to the disk");
}

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || !std::filesystem::is_regular_file(path))
    throw Error(ErrorCode::kIo, path.string() + ": cannot be read");
  std::vector<std::byte> bytes(static_cast<size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) throw Error(ErrorCode::kIo, path.string() + ": cannot be read");
  return bytes;
}

}  // namespace thinwire
