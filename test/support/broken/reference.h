// What both halves of the reference plugin share: sockets on the loopback interface, properties, and the process-wide
// defects. Correct, small and slow; moves only when it is called, has no thread and blocks nowhere (unless that is its
// defect).
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "broken/defects.h"
#include "plugin/nccl_types.h"

#define CGX_REFERENCE_EXPORT __attribute__((visibility("default")))

namespace cgx::broken {

using Clock = std::chrono::steady_clock;

/// What is in NCCL's 128 bytes.
struct Handle {
  std::uint64_t magic;
  sockaddr_in address;
};
inline constexpr std::uint64_t kMagic = 0x65636E6572656665ULL;
static_assert(sizeof(Handle) <= NCCL_NET_HANDLE_MAXSIZE);

struct Listener {
  int fd = -1;
};

inline void setNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

inline ncclResult_t listenOnLoopback(void* handle, void** listenComm) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  Handle h{};
  h.magic = kMagic;
  h.address.sin_family = AF_INET;
  h.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof h.address;
  auto* address = reinterpret_cast<sockaddr*>(&h.address);
  if (fd < 0 || bind(fd, address, length) != 0 || listen(fd, 128) != 0 || getsockname(fd, address, &length) != 0) {
    if (fd >= 0) close(fd);
    return ncclSystemError;
  }
  std::memcpy(handle, &h, sizeof h);
  *listenComm = new Listener{fd};
  return ncclSuccess;
}

/// On the loopback interface the kernel completes a connection without an accept, so this does not wait for the peer.
inline int dial(const void* handle) {
  Handle h;
  std::memcpy(&h, handle, sizeof h);
  if (h.magic != kMagic) return -1;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&h.address), sizeof h.address) != 0) {
    close(fd);
    return -1;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

enum class Io { Moved, WouldBlock, Lost };

/// Moves what can be moved of [*done, size); Moved when all of it is.
inline Io sendSome(int fd, const void* data, std::size_t size, std::size_t* done) {
  while (*done < size) {
    const ssize_t n = send(fd, static_cast<const char*>(data) + *done, size - *done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      *done += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN) {
      return Io::WouldBlock;
    } else if (errno != EINTR) {
      return is(Defect::PeerLossUnnoticed) ? Io::WouldBlock : Io::Lost;
    }
  }
  return Io::Moved;
}

inline Io recvSome(int fd, void* data, std::size_t size, std::size_t* done) {
  while (*done < size) {
    const ssize_t n = recv(fd, static_cast<char*>(data) + *done, size - *done, MSG_DONTWAIT);
    if (n > 0) {
      *done += static_cast<std::size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      return Io::WouldBlock;
    } else if (n == 0 || errno != EINTR) {
      return is(Defect::PeerLossUnnoticed) ? Io::WouldBlock : Io::Lost;
    }
  }
  return Io::Moved;
}

template <class Props>
ncclResult_t fillProps(int dev, Props* out) {
  static char name[] = "reference";
  *out = {};
  out->name = name;
  out->ptrSupport = NCCL_PTR_HOST;
  out->speed = is(Defect::BadProperties) ? 0 : 10000;
  out->port = 1;
  out->maxComms = 65536;
  out->maxRecvs = 8;
  if constexpr (requires { out->regIsGlobal; }) out->regIsGlobal = 1;
  if constexpr (requires { out->vProps; }) {
    out->vProps.ndevs = 1;
    out->vProps.devs[0] = dev;
    out->maxP2pBytes = NCCL_MAX_NET_SIZE_BYTES;
    out->maxCollBytes = std::size_t{1} << 20;
  }
  return ncclSuccess;
}

/// The defects of a library that does not clean up; called by init of either half.
void leakSomething();

/// For the defect that sleeps where it must not.
inline void sleepIfBlocking() {
  if (is(Defect::BlockingCall)) usleep(60 * 1000);
}
inline void sleepIfCloseBlocks() {
  if (is(Defect::CloseBlocks)) usleep(2600 * 1000);
}

}  // namespace cgx::broken
