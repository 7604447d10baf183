// sockaddr in and out; the only file that casts between its families.
#include "transport/socket/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace cgx::transport::socket {

Address::Address(const sockaddr* from, socklen_t length) noexcept {
  if (from == nullptr) return;
  const bool known = (from->sa_family == AF_INET && length >= sizeof(sockaddr_in)) ||
                     (from->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6));
  if (known) std::memcpy(&storage_, from, std::min<std::size_t>(length, sizeof storage_));
}

Address Address::fromHandle(const wire::Handle& handle) noexcept {
  Address address;
  if (handle.family == wire::kIpv4) {
    address.storage_.ss_family = AF_INET;
    std::memcpy(&address.v4().sin_addr, handle.address.data(), sizeof(in_addr));
  } else if (handle.family == wire::kIpv6) {
    address.storage_.ss_family = AF_INET6;
    std::memcpy(&address.v6().sin6_addr, handle.address.data(), sizeof(in6_addr));
  }
  address.setPort(handle.port);
  return address;
}

void Address::toHandle(wire::Handle& handle) const noexcept {
  handle.family = family() == AF_INET ? wire::kIpv4 : wire::kIpv6;
  handle.port = port();
  handle.address = {};
  if (family() == AF_INET) {
    std::memcpy(handle.address.data(), &v4().sin_addr, sizeof(in_addr));
  } else {
    std::memcpy(handle.address.data(), &v6().sin6_addr, sizeof(in6_addr));
  }
  handle.scope = scope();
}

std::uint16_t Address::port() const noexcept {
  if (family() == AF_INET) return ntohs(v4().sin_port);
  if (family() == AF_INET6) return ntohs(v6().sin6_port);
  return 0;
}

void Address::setPort(std::uint16_t port) noexcept {
  if (family() == AF_INET) v4().sin_port = htons(port);
  if (family() == AF_INET6) v6().sin6_port = htons(port);
}

std::uint32_t Address::scope() const noexcept { return family() == AF_INET6 ? v6().sin6_scope_id : 0; }

void Address::setScope(std::uint32_t interfaceIndex) noexcept {
  if (family() == AF_INET6) v6().sin6_scope_id = interfaceIndex;
}

bool Address::isLoopback() const noexcept {
  if (family() == AF_INET) return (ntohl(v4().sin_addr.s_addr) >> 24) == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6().sin6_addr);
}

bool Address::isLinkLocal() const noexcept {
  if (family() == AF_INET) return (ntohl(v4().sin_addr.s_addr) >> 16) == 0xa9fe;
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6().sin6_addr);
}

bool Address::sameHost(const Address& other) const noexcept {
  if (family() != other.family()) return false;
  if (family() == AF_INET) return v4().sin_addr.s_addr == other.v4().sin_addr.s_addr;
  return family() == AF_INET6 && std::memcmp(&v6().sin6_addr, &other.v6().sin6_addr, sizeof(in6_addr)) == 0;
}

std::string Address::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (family() == AF_INET) ::inet_ntop(AF_INET, &v4().sin_addr, text, sizeof text);
  if (family() == AF_INET6) ::inet_ntop(AF_INET6, &v6().sin6_addr, text, sizeof text);
  return text;
}

std::string Address::text() const {
  const std::string at = std::to_string(port());
  return family() == AF_INET6 ? "[" + host() + "]:" + at : host() + ":" + at;
}

Address localAddress(int fd) noexcept {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return {reinterpret_cast<const sockaddr*>(&storage), length};
}

Address peerAddress(int fd) noexcept {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return {reinterpret_cast<const sockaddr*>(&storage), length};
}

}  // namespace cgx::transport::socket
