// Socket options and errno classes in one place.
#include "transport/socket/socket_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>

namespace cgx::transport::socket {
namespace {

template <class T>
void setOption(int fd, int level, int option, T value) noexcept {
  (void)::setsockopt(fd, level, option, &value, sizeof value);
}

Status ioError(const char* what, int sysErrno) {
  if (sysErrno == EAGAIN || sysErrno == EWOULDBLOCK) return Status::pending();
  Status status = Status::system(what, sysErrno);
  return isPeerLoss(sysErrno) ? Status(Code::Remote, status.text(), sysErrno) : status;
}

}  // namespace

Status descriptorError(const std::string& what, int sysErrno) {
  if (sysErrno != EMFILE && sysErrno != ENFILE) return Status::system(what, sysErrno);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return Status::system(what + ": too few open files allowed, RLIMIT_NOFILE is " + std::to_string(limit.rlim_cur) +
                            " (raise it with ulimit -n)",
                        sysErrno);
}

Result<Fd> openSocket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return descriptorError("open a socket", errno);
  return fd;
}

void tune(int fd, const Settings& settings) noexcept {
  const int interval = std::max(1, static_cast<int>(std::lround(settings.keepalive)));
  setOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  setOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  setOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, interval);
  setOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  setUserTimeout(fd, static_cast<unsigned>(settings.peerTimeout * 1000));
}

void setUserTimeout(int fd, unsigned milliseconds) noexcept {
  setOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, milliseconds);
}

bool isPeerLoss(int sysErrno) noexcept {
  switch (sysErrno) {
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ENOTCONN:
      return true;
    default:
      return false;
  }
}

Result<std::size_t> SocketStream::read(std::span<std::byte> into) {
  const ssize_t n = retryEintr([&] { return ::recv(fd_, into.data(), into.size(), 0); });
  if (n > 0) return static_cast<std::size_t>(n);
  if (n == 0) return Status(Code::Remote, "the peer closed the connection", ECONNRESET);
  return ioError("read", errno);
}

Result<std::size_t> SocketStream::write(std::span<const std::byte> from) {
  const ssize_t n = retryEintr([&] { return ::send(fd_, from.data(), from.size(), MSG_NOSIGNAL); });
  if (n >= 0) return static_cast<std::size_t>(n);
  return ioError("write", errno);
}

}  // namespace cgx::transport::socket
