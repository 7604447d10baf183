// IP addresses as the rest of the socket transport uses them: a sockaddr with its length, and its text.
// Knows the two address families; knows no interfaces and no sockets.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "cgx/status.h"
#include "cgx/wire_link.h"

namespace cgx::transport::socket {

/// An IPv4 or IPv6 address with port; family AF_UNSPEC when empty.
class Address {
 public:
  Address() noexcept = default;
  /// Copies `length` bytes of a kernel answer; anything but AF_INET and AF_INET6 becomes empty.
  Address(const sockaddr* from, socklen_t length) noexcept;
  /// What a handle says. A link-local address has no scope yet.
  static Address fromHandle(const wire::Handle& handle) noexcept;
  /// Writes family, port, address and scope.
  void toHandle(wire::Handle& handle) const noexcept;

  int family() const noexcept { return storage_.ss_family; }
  bool empty() const noexcept { return family() == AF_UNSPEC; }
  std::uint16_t port() const noexcept;
  void setPort(std::uint16_t port) noexcept;
  std::uint32_t scope() const noexcept;
  void setScope(std::uint32_t interfaceIndex) noexcept;

  bool isLoopback() const noexcept;
  /// 169.254/16 or fe80::/10.
  bool isLinkLocal() const noexcept;
  bool sameHost(const Address& other) const noexcept;

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const noexcept { return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6); }

  std::string host() const;  // "10.0.0.2", "fe80::1"
  std::string text() const;  // "10.0.0.2:4711", "[fe80::1]:4711"

 private:
  sockaddr_in& v4() noexcept { return reinterpret_cast<sockaddr_in&>(storage_); }
  const sockaddr_in& v4() const noexcept { return reinterpret_cast<const sockaddr_in&>(storage_); }
  sockaddr_in6& v6() noexcept { return reinterpret_cast<sockaddr_in6&>(storage_); }
  const sockaddr_in6& v6() const noexcept { return reinterpret_cast<const sockaddr_in6&>(storage_); }

  sockaddr_storage storage_{};
};

/// The two ends of a connected (or bound) socket; empty when the kernel has none.
Address localAddress(int fd) noexcept;
Address peerAddress(int fd) noexcept;

}  // namespace cgx::transport::socket
