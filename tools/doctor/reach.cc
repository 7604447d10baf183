#include "doctor/reach.h"

#include <algorithm>
#include <thread>

namespace cgx::tool::doctor {
namespace {

using transport::Clock;
constexpr std::size_t kMostDoors = 8;  // of a host; NCCL uses no more interfaces on one
constexpr auto kPause = std::chrono::milliseconds(2);

struct Visit {
  int rank;
  std::string device;
  std::unique_ptr<transport::Connector> connector;  // nothing: over
  Status state = Status::pending();
};

}  // namespace

Result<Doors> Doors::open(const Settings& settings) {
  auto transport = transport::createSocket(settings);
  if (!transport.ok()) return std::move(transport).status();
  Doors all;
  all.transport_ = std::move(transport).value();
  const auto devices = all.transport_->devices();
  for (std::size_t i = 0; i < std::min(devices.size(), kMostDoors); ++i) {
    auto listener = all.transport_->listen(static_cast<int>(i), transport::Role::Net);
    if (!listener.ok()) return std::move(listener).status().within(devices[i].name);
    all.doors_.push_back({devices[i].name, listener.value()->handle()});
    all.listeners_.push_back(std::move(listener).value());
  }
  return all;
}

std::vector<Unreached> Doors::visit(const std::vector<std::optional<Card>>& cards, const std::vector<int>& ranks) {
  std::vector<Visit> visits;
  for (const int rank : ranks) {
    const Card& card = *cards[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < std::min(card.doors.size(), kMostDoors); ++i) {
      transport::ConnectOptions options;
      options.streams = 1;
      // The interfaces of two hosts belong together in their order.
      const auto own = static_cast<int>(std::min(i, doors_.size() - 1));
      auto connector = transport_->connect(own, card.doors[i].handle, options);
      Visit visit{rank, card.doors[i].device, nullptr, {}};
      if (connector.ok()) {
        visit.connector = std::move(connector).value();
        visit.state = Status::pending();
      } else {
        visit.state = std::move(connector).status();
      }
      visits.push_back(std::move(visit));
    }
  }
  const auto underWay = [](const Visit& visit) { return visit.connector != nullptr; };
  while (std::any_of(visits.begin(), visits.end(), underWay)) {
    for (Visit& visit : visits) {
      if (visit.connector == nullptr) continue;
      visit.state = visit.connector->progress();
      if (!visit.state.isPending()) visit.connector.reset();
    }
    std::this_thread::sleep_for(kPause);
  }
  std::vector<Unreached> closed;
  for (const Visit& visit : visits)
    if (visit.state.failed()) closed.push_back({visit.rank, visit.device, visit.state.text()});
  return closed;
}

}  // namespace cgx::tool::doctor
