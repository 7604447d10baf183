#include "cgx/status.h"

#include <cstddef>
#include <cstring>
#include <new>

namespace cgx {

const char* name(Code code) noexcept {
  switch (code) {
    case Code::Ok:
      return "ok";
    case Code::Pending:
      return "pending";
    case Code::Unsupported:
      return "unsupported";
    case Code::Invalid:
      return "invalid";
    case Code::System:
      return "system";
    case Code::Remote:
      return "remote";
    case Code::Timeout:
      return "timeout";
    case Code::Internal:
      return "internal";
  }
  return "unknown";
}

const std::string& Status::text() const noexcept {
  // In place and never destroyed: a thread may still ask while the process exits, and the library may be unloaded.
  alignas(std::string) static std::byte room[sizeof(std::string)];
  static const std::string* const kEmpty = new (room) std::string;
  return text_ != nullptr ? *text_ : *kEmpty;
}

Status Status::system(std::string what, int sysErrno) {
  char buffer[128] = "unknown error";
  // The GNU variant: may return a static string instead of filling the buffer. strerror() itself is not thread safe.
  const char* reason = strerror_r(sysErrno, buffer, sizeof buffer);
  what += ": ";
  what += reason;
  what += " (errno " + std::to_string(sysErrno) + ")";
  return {Code::System, std::move(what), sysErrno};
}

Status Status::within(const std::string& context) && {
  if (failed()) text_ = std::make_shared<const std::string>(context + ": " + text());
  return std::move(*this);
}

}  // namespace cgx
