// How things go wrong: one vocabulary of codes, as values for bad bytes and as exceptions for the
// rest.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace thinwire {

enum class ErrorCode : uint8_t {
  kOk = 0,
  kBadLength,    // bytes are too few or too many
  kCorrupt,      // bytes contradict themselves or their checksum
  kUnknownName,  // no such codec, option, recipe key, stream
  kBadOption,    // a value of the wrong type or out of range
  kMismatch,     // two sides that must agree do not
  kNonFinite,    // NaN or Inf where a number is needed
  kContract,     // the caller broke a documented precondition
  kPeerLost,     // another rank is gone
  kTimeout,      // a deadline passed
  kIo,           // a file could not be read or written
  kUnsupported,  // not built in, or not for this combination
};

// The identifier without its k, in words: "bad length".
std::string_view to_string(ErrorCode code) noexcept;

// What is thrown for broken contracts and a lost world. what() reads "origin: what is wrong".
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// An error that every rank of a group throws alike: of none of them in particular.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// The outcome of looking at bytes or settings that may be bad. Success allocates nothing.
class [[nodiscard]] Status {
 public:
  static Status ok() noexcept { return Status(); }
  static Status fail(ErrorCode code, std::string message) {
    return Status(code, std::move(message));
  }

  bool is_ok() const noexcept { return code_ == ErrorCode::kOk; }
  explicit operator bool() const noexcept { return is_ok(); }
  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }

  // Throws Error with this code and message unless ok.
  void or_throw() const {
    if (!is_ok()) throw Error(code_, message_);
  }

 private:
  Status() noexcept = default;
  Status(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code_ = ErrorCode::kOk;
  std::string message_;
};

// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)), status_(Status::ok()) {}  // NOLINT: implicit
  Result(Status status) : status_(std::move(status)) {}                 // NOLINT: implicit

  bool is_ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return is_ok(); }
  const Status& status() const noexcept { return status_; }

  // The value; throws Error with the status otherwise.
  T& value() & {
    status_.or_throw();
    return *value_;
  }
  T&& value() && {
    status_.or_throw();
    return *std::move(value_);
  }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace thinwire
