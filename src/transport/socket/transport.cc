// The socket transport's front: devices, listeners, connectors. Holds no thread and no socket of its own.
#include "cgx/transport.h"

#include <algorithm>
#include <memory>

#include "cgx/topology.h"
#include "transport/handshake.h"
#include "transport/socket/connector.h"
#include "transport/socket/interfaces.h"
#include "transport/socket/listener.h"

namespace cgx::transport {
namespace socket {
namespace {

constexpr int kDefaultStreams = 2;

class SocketTransport final : public Transport {
 public:
  SocketTransport(const Settings& settings, std::vector<Chosen> chosen)
      : settings_(settings), chosen_(std::move(chosen)) {
    std::vector<std::string> pciPaths;
    for (const Chosen& one : chosen_) {
      devices_.push_back(describeDevice(one, settings_.linkSpeedMbps));
      pciPaths.push_back(devices_.back().pciPath);
    }
    if (settings_.affinity == Affinity::Near) settings_.nearCpus = topology::cpusNear(pciPaths);
  }

  std::span<const Device> devices() const override { return devices_; }

  Result<std::unique_ptr<Listener>> listen(int device, Role role) override {
    CGX_TRY(check(device));
    const Chosen& one = chosen_[static_cast<std::size_t>(device)];
    return SocketListener::create(settings_, one.interface.name, one.listenAddress, role);
  }

  Result<std::unique_ptr<Connector>> connect(int device, const Handle& handle, const ConnectOptions& options) override {
    CGX_TRY(check(device));
    Result<wire::Handle> fields = decodeHandle(handle);
    if (!fields.ok()) return std::move(fields).status();
    if (options.hello.size() > kMaxHelloBytes) {
      return Status::invalid("a hello of " + std::to_string(options.hello.size()) + " bytes, at most " +
                             std::to_string(kMaxHelloBytes));
    }
    if (fields->role != static_cast<std::uint16_t>(options.role)) {
      return Status::invalid("connection handle is for another kind of connection (net and collective were mixed up)");
    }
    const int wanted = options.streams > 0     ? options.streams
                       : settings_.streams > 0 ? settings_.streams
                                               : kDefaultStreams;
    const auto streams = static_cast<std::size_t>(std::clamp(wanted, 1, static_cast<int>(wire::kMaxStreams)));
    Result<Route> route = routeFrom(chosen_[static_cast<std::size_t>(device)], Address::fromHandle(fields.value()));
    if (!route.ok()) return std::move(route).status();
    return std::unique_ptr<Connector>(
        std::make_unique<SocketConnector>(settings_, std::move(route).value(), fields.value(), options, streams));
  }

 private:
  Status check(int device) const {
    if (device >= 0 && static_cast<std::size_t>(device) < devices_.size()) return {};
    return Status::invalid("device " + std::to_string(device) + " does not exist, there are " +
                           std::to_string(devices_.size()));
  }

  /// Dials from the device's own address, so that the traffic leaves on it.
  static Result<Route> routeFrom(const Chosen& one, Address to) {
    Route route{one.interface.name, one.interface.best(to.family()), to};
    if (to.isLinkLocal()) route.to.setScope(one.interface.index);
    if (route.from.empty()) {
      return Status::invalid("the peer listens on " + to.text() + ", but " + one.interface.name + " has no " +
                             (to.family() == AF_INET6 ? "IPv6" : "IPv4") + " address");
    }
    if (route.from.isLinkLocal()) route.from.setScope(one.interface.index);
    // From a loopback address only loopback can be reached, and the other way round: let the kernel choose.
    if (route.from.isLoopback() != to.isLoopback()) route.from = {};
    return route;
  }

  Settings settings_;
  const std::vector<Chosen> chosen_;
  std::vector<Device> devices_;
};

}  // namespace
}  // namespace socket

Result<std::unique_ptr<Transport>> createSocket(const Settings& settings) {
  Result<std::vector<socket::Interface>> all = socket::listInterfaces();
  if (!all.ok()) return std::move(all).status();
  Result<std::vector<socket::Chosen>> chosen = socket::chooseInterfaces(all.value(), settings.ifname, settings.family);
  if (!chosen.ok()) return std::move(chosen).status();
  return std::unique_ptr<Transport>(std::make_unique<socket::SocketTransport>(settings, std::move(chosen).value()));
}

}  // namespace cgx::transport
