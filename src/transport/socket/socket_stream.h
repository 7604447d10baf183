// Bytes over a non-blocking TCP socket, for the handshake, and the options that every socket of ours has.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "base/fd.h"
#include "cgx/settings.h"
#include "transport/byte_stream.h"
#include "transport/socket/address.h"

namespace cgx::transport::socket {

/// Non-blocking, close-on-exec. On EMFILE and ENFILE the text names the limit to raise.
Result<Fd> openSocket(int family);
/// The same text for other calls that make a descriptor.
Status descriptorError(const std::string& what, int sysErrno);

/// No delay, keepalive, user timeout. Failures are ignored: each option only makes an error come sooner.
void tune(int fd, const Settings& settings) noexcept;
/// In milliseconds; 0 switches it off.
void setUserTimeout(int fd, unsigned milliseconds) noexcept;

/// Errno values that say that the other end, or the way to it, is gone.
bool isPeerLoss(int sysErrno) noexcept;

class SocketStream final : public ByteStream {
 public:
  explicit SocketStream(int fd) noexcept : fd_(fd) {}
  Result<std::size_t> read(std::span<std::byte> into) override;
  Result<std::size_t> write(std::span<const std::byte> from) override;

 private:
  int fd_;  // borrowed
};

}  // namespace cgx::transport::socket
