// Rules by name are listed at rankOf; everything else the kernel tells.
#include "transport/socket/interfaces.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/fd.h"
#include "cgx/topology.h"
#include "transport/checksum.h"

namespace cgx::transport::socket {
namespace {

// The kernel says nothing about virtual interfaces and -1 about many in virtual machines; NCCL assumes the same figure.
constexpr int kUnknownSpeedMbps = 10'000;
constexpr int kLoopbackSpeedMbps = 40'000;  // memory's; at 10 Gb/s codes would seem to gain where they lose

enum class Rank { Regular, Fallback, Loopback, OnlyNamed };

bool hasPrefix(const std::string& name, std::string_view prefix) { return name.compare(0, prefix.size(), prefix) == 0; }

/// By name, since containers and tunnels cannot be told from NICs otherwise without privileges.
Rank rankOf(const Interface& interface) {
  static constexpr std::array kHostBridges{"docker", "virbr",  "cni",     "br-",  "lxc",
                                           "lxd",    "podman", "flannel", "cali", "kube"};
  static constexpr std::array kTunnels{"veth", "tun",    "tap",    "ip6tnl",  "sit",
                                       "gre",  "ip6gre", "ip_vti", "ip6_vti", "vxlan"};
  const auto named = [&](const char* prefix) { return hasPrefix(interface.name, prefix); };
  if (interface.loopback) return Rank::Loopback;
  if (std::any_of(kHostBridges.begin(), kHostBridges.end(), named)) return Rank::OnlyNamed;
  if (std::any_of(kTunnels.begin(), kTunnels.end(), named)) return Rank::Fallback;
  return Rank::Regular;
}

/// NCCL_SOCKET_IFNAME, taken apart.
struct Pattern {
  bool exclude = false;
  bool exact = false;
  std::vector<std::string> names;

  explicit Pattern(const std::string& text) {
    std::size_t at = 0;
    if (at < text.size() && text[at] == '^') exclude = true, ++at;
    if (at < text.size() && text[at] == '=') exact = true, ++at;
    while (at <= text.size()) {
      const std::size_t end = std::min(text.find(',', at), text.size());
      // NCCL allows "name:port"; only host channel adapters have ports.
      std::string name = text.substr(at, end - at);
      if (!name.empty()) names.push_back(name.substr(0, name.find(':')));
      at = end + 1;
    }
  }

  bool empty() const { return names.empty(); }
  bool lists(const std::string& name) const {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& n) { return exact ? n == name : hasPrefix(name, n); });
  }
};

Address listenAddress(const Interface& interface, const std::string& family, bool named) {
  Address address;
  if (family != "AF_INET6") address = interface.best(AF_INET);
  if ((address.empty() || address.isLinkLocal()) && family != "AF_INET") {
    const Address v6 = interface.best(AF_INET6);
    if (!v6.empty() && (address.empty() || !v6.isLinkLocal())) address = v6;
  }
  return address.isLinkLocal() && !named ? Address() : address;
}

/// Why an interface is not used, for the message when none is.
std::string whyNot(const Interface& interface, const Pattern& pattern, const std::string& family) {
  if (!pattern.empty() && pattern.lists(interface.name) == pattern.exclude) return "not matched";
  if (!interface.up) return "down";
  if (interface.addresses.empty()) return "no address";
  if (listenAddress(interface, family, true).empty()) return "no address of family " + family;
  if (listenAddress(interface, family, false).empty()) return "only link-local addresses";
  return "used only when named";
}

std::string readLine(const std::string& path) {
  const Fd file(retryEintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  std::array<char, 256> bytes;
  const ssize_t n = file.valid() ? retryEintr([&] { return ::read(file.get(), bytes.data(), bytes.size()); }) : 0;
  const std::string_view text(bytes.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  return std::string(text.substr(0, text.find('\n')));
}

int kernelSpeedMbps(const Interface& interface) {
  if (interface.loopback) return kLoopbackSpeedMbps;
  const std::string line = readLine("/sys/class/net/" + interface.name + "/speed");
  const long speed = std::strtol(line.c_str(), nullptr, 10);
  return speed > 0 && speed <= 10'000'000 ? static_cast<int>(speed) : kUnknownSpeedMbps;
}

}  // namespace

Address Interface::best(int family) const noexcept {
  Address found;
  for (const Address& address : addresses) {
    if (address.family() != family) continue;
    if (!address.isLinkLocal()) return address;
    if (found.empty()) found = address;
  }
  return found;
}

Result<std::vector<Interface>> listInterfaces() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return Status::system("list network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  std::vector<Interface> all;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    auto at = std::find_if(all.begin(), all.end(), [&](const Interface& i) { return i.name == entry->ifa_name; });
    if (at == all.end()) {
      at = all.insert(all.end(), Interface{entry->ifa_name, ::if_nametoindex(entry->ifa_name), false, false, {}});
    }
    at->up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
    at->loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    const Address address(entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (!address.empty()) at->addresses.push_back(address);
  }
  std::sort(all.begin(), all.end(), [](const Interface& a, const Interface& b) { return a.index < b.index; });
  return all;
}

Result<std::vector<Chosen>> chooseInterfaces(const std::vector<Interface>& all, const std::string& patternText,
                                             const std::string& family) {
  const Pattern pattern(patternText);
  const bool byName = !pattern.empty() && !pattern.exclude;
  for (const Rank rank : {Rank::Regular, Rank::Fallback, Rank::Loopback}) {
    std::vector<Chosen> chosen;
    for (const Interface& interface : all) {
      if (!interface.up) continue;
      if (!pattern.empty() && pattern.lists(interface.name) == pattern.exclude) continue;
      if (!byName && rankOf(interface) != rank) continue;
      const Address address = listenAddress(interface, family, byName);
      if (!address.empty() && chosen.size() < kMaxDevices) chosen.push_back({interface, address});
    }
    if (!chosen.empty()) return chosen;
  }
  std::string seen;
  for (const Interface& interface : all) {
    seen += (seen.empty() ? "" : ", ") + interface.name + " (" + whyNot(interface, pattern, family) + ")";
  }
  return Status::invalid("no usable network interface" +
                         (pattern.empty() ? "" : " for CGX_SOCKET_IFNAME=" + patternText) +
                         (family.empty() ? "" : " and CGX_SOCKET_FAMILY=" + family) + "; this host has: " + seen);
}

Device describeDevice(const Chosen& chosen, int linkSpeedMbps) {
  const std::string& name = chosen.interface.name;
  Device device;
  device.name = name;
  device.pciPath = topology::pciPathOf(name);
  device.address = chosen.listenAddress.host();
  // The same for all processes of this boot, different for every interface of every host.
  const std::string identity =
      readLine("/proc/sys/kernel/random/boot_id") + "/" + name + "/" + readLine("/sys/class/net/" + name + "/address");
  device.guid = checksumOf(std::as_bytes(std::span(identity)));
  device.speedMbps = linkSpeedMbps > 0 ? linkSpeedMbps : kernelSpeedMbps(chosen.interface);
  return device;
}

}  // namespace cgx::transport::socket
