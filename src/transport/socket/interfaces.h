// Which network interfaces there are and which of them to use: NCCL's NCCL_SOCKET_IFNAME grammar and the default rules.
// chooseInterfaces is pure, so that a table can test it; knows no sockets.
#pragma once

#include <string>
#include <vector>

#include "cgx/status.h"
#include "cgx/transport.h"
#include "transport/socket/address.h"

namespace cgx::transport::socket {

struct Interface {
  std::string name;
  std::uint32_t index = 0;
  bool up = false;  // and has a carrier
  bool loopback = false;
  std::vector<Address> addresses;  // in the kernel's order

  /// The address to dial or listen from; empty when there is none of that family. Prefers addresses that are not
  /// link-local.
  Address best(int family) const noexcept;
};

/// A usable interface: the address it listens on comes first by the rules of the family setting.
struct Chosen {
  Interface interface;
  Address listenAddress;
};

/// NCCL's own limit is 16 for sockets; more devices than this only cost start-up time.
inline constexpr std::size_t kMaxDevices = 32;

/// All interfaces of this network namespace, by index.
Result<std::vector<Interface>> listInterfaces();

/// `pattern`: a list of prefixes "eth,ib0"; "=eth0" exact names; "^docker" all but these prefixes; "^=lo" all but these
/// names. Empty: every interface that is up, has a routable address and is not loopback, a bridge of this host or a
/// tunnel; tunnels and veth where there is nothing else; then loopback. `family`: "", "AF_INET" or "AF_INET6". Invalid
/// when nothing is left, saying why for each.
Result<std::vector<Chosen>> chooseInterfaces(const std::vector<Interface>& all, const std::string& pattern,
                                             const std::string& family);

/// Speed from `linkSpeedMbps`, else the kernel, else 10 Gb/s (40 for loopback); PCI path and guid.
Device describeDevice(const Chosen& chosen, int linkSpeedMbps);

}  // namespace cgx::transport::socket
