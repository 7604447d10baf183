// The one place that meets ncclResult_t: every exported function runs its body inside guard(), which lets no exception
// out and pairs each error with exactly one WARN. Knows no call in particular.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "cgx/log.h"
#include "cgx/status.h"
#include "plugin/nccl_types.h"

namespace cgx::plugin {

constexpr ncclResult_t toResult(Code code) noexcept {
  switch (code) {
    case Code::Ok:
      return ncclSuccess;
    case Code::Pending:
      return ncclSuccess;  // bodies express "ask again" in their out-arguments
    case Code::Invalid:
      return ncclInvalidUsage;
    case Code::System:
      return ncclSystemError;
    case Code::Remote:
    case Code::Timeout:
      return ncclRemoteError;
    case Code::Unsupported:
    case Code::Internal:
      return ncclInternalError;
  }
  return ncclInternalError;
}

/// What a call answers. A Status converts; the other forms say what a Status cannot.
struct Answer {
  Answer() = default;
  Answer(Status s) : status(std::move(s)), result(toResult(status.code())) {}  // NOLINT(google-explicit-constructor)

  /// A NULL or out-of-range argument, as opposed to a use that breaks the rules.
  static Answer badArgument(std::string why) {
    Answer answer{Status::invalid(std::move(why))};
    answer.result = ncclInvalidArgument;
    return answer;
  }
  /// The same failure has had its line before: a communicator's error is repeated to every later call.
  Answer repeated() && {
    reported = true;
    return std::move(*this);
  }

  Status status;
  ncclResult_t result = ncclSuccess;
  bool reported = false;
};

template <class Body>
ncclResult_t guard(const char* operation, Body&& body) noexcept {
  try {
    const Answer answer = std::forward<Body>(body)();
    if (answer.result != ncclSuccess && !answer.reported)
      CGX_LOG(Warn, Net, "%s: %s", operation, answer.status.text().c_str());
    return answer.result;
  } catch (const std::bad_alloc&) {
    CGX_LOG(Warn, Net, "%s: out of memory", operation);
    return ncclSystemError;
  } catch (const std::exception& error) {
    CGX_LOG(Warn, Net, "%s: unexpected: %s", operation, error.what());
    return ncclInternalError;
  } catch (...) {
    CGX_LOG(Warn, Net, "%s: unexpected exception", operation);
    return ncclInternalError;
  }
}

}  // namespace cgx::plugin
