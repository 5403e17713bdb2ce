// Errors: one vocabulary of codes, delivered as values for bad bytes and settings, and as
// exceptions for the rest.
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
  kBadLength,    // there are too few or too many bytes
  kCorrupt,      // bytes contradict themselves or their checksum
  kUnknownName,  // no such codec, option, recipe key, stream
  kBadOption,    // a value of the wrong type or out of range
  kMismatch,     // two sides that must agree do not
  kNonFinite,    // NaN or Inf where a number is needed
  kContract,     // the caller broke a documented precondition
  kPeerLost,     // another rank is gone
  kTimeout,      // a deadline passed
  kIo,           // a file could not be read or written
  kUnsupported,  // not built in, or not supported in this combination
};

// The identifier without its k, in words: "bad length".
std::string_view to_string(ErrorCode code) noexcept;

// The exception for broken contracts, lost ranks, deadlines and files. what() reads "origin: what
// is wrong".
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// An error that every rank of a group throws alike, and that is not the fault of one of them alone.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// The outcome of an operation on bytes or settings that may be bad. Success allocates nothing.
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

  // The value. Throws Error with the status if there is none.
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
