// Errors as values: a code, the text a user reads, the errno behind it. Nothing here throws or logs.
// Knows nothing of NCCL: plugin/boundary.h is the only place that meets ncclResult_t.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace cgx {

enum class Code : std::uint8_t {
  Ok,
  Pending,      // not an error: nothing lost, call again
  Unsupported,  // this build, host or peer cannot do that
  Invalid,      // the caller's mistake: argument, setting, mismatch among ranks
  System,       // the operating system refused
  Remote,       // the peer is gone, broke the protocol, or said that it failed
  Timeout,      // a deadline of ours passed
  Internal,     // a bug of ours
};

/// "ok", "pending", "unsupported" …: for logs and tests.
const char* name(Code code) noexcept;

/// Result of an operation. Ok and Pending never allocate; an error's text is shared by its copies, so that a
/// communicator's first failure can be repeated to every later caller, by any thread, without allocating.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(Code code, std::string text, int sysErrno = 0)
      : code_(code), sysErrno_(sysErrno), text_(std::make_shared<const std::string>(std::move(text))) {}

  static Status pending() noexcept {
    Status s;
    s.code_ = Code::Pending;
    return s;
  }
  static Status invalid(std::string text) { return {Code::Invalid, std::move(text)}; }
  static Status remote(std::string text) { return {Code::Remote, std::move(text)}; }
  static Status internal(std::string text) { return {Code::Internal, std::move(text)}; }
  /// Appends ": strerror (errno n)" to `what`.
  static Status system(std::string what, int sysErrno);

  bool ok() const noexcept { return code_ == Code::Ok; }
  bool isPending() const noexcept { return code_ == Code::Pending; }
  bool failed() const noexcept { return code_ != Code::Ok && code_ != Code::Pending; }
  Code code() const noexcept { return code_; }
  int sysErrno() const noexcept { return sysErrno_; }
  /// Lives as long as any copy of this status.
  const std::string& text() const noexcept;

  /// The same error with "context: " before its text; Ok and Pending stay as they are.
  Status within(const std::string& context) &&;

 private:
  Code code_ = Code::Ok;
  int sysErrno_ = 0;
  std::shared_ptr<const std::string> text_;  // null: empty
};

/// A value or the Status that explains why there is none (which may be Pending).
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): a factory returns either
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const noexcept { return value_.has_value(); }
  const Status& status() const& noexcept { return status_; }
  Status status() && noexcept { return std::move(status_); }
  T& value() & noexcept { return *value_; }
  const T& value() const& noexcept { return *value_; }
  T value() && noexcept { return std::move(*value_); }
  T* operator->() noexcept { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace cgx

/// Leaves the function with anything that is not Ok; Pending leaves too, which is what a state step wants.
#define CGX_TRY(expr)                                   \
  do {                                                  \
    if (::cgx::Status s_ = (expr); !s_.ok()) return s_; \
  } while (0)
