// A transport inside one process, for tests of the plugin's own logic: no sockets, no threads, faults on demand.
// Linked in place of src/transport; follows the same contract.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>

#include "cgx/transport.h"
#include "test/plugin/memory_control.h"

namespace cgx::transport {
namespace {

std::mutex mutex;  // one lock for everything; handlers are told without it
CgxMemoryControl control;

struct Endpoint;
using Told = std::vector<std::pair<Completion*, Status>>;

struct Send {
  std::span<const std::byte> data;
  int tag;
  Completion* completion;
};
struct Receive {
  std::vector<Slot> slots;
  std::vector<bool> filled;
  Completion* completion;
};

struct Endpoint {
  std::deque<Send> sends;
  std::deque<Receive> receives;
  Status status;
  std::weak_ptr<Endpoint> other;
};

void fail(Endpoint& end, const Status& why, Told& told) {
  if (!end.status.failed()) end.status = why;
  for (const Send& send : end.sends) told.emplace_back(send.completion, end.status);
  for (const Receive& receive : end.receives) told.emplace_back(receive.completion, end.status);
  end.sends.clear();
  end.receives.clear();
}

// Fills the oldest receive that still wants the tag of a send; sends of other tags are not held back.
bool matchOne(Endpoint& from, Endpoint& to, Told& told) {
  for (auto send = from.sends.begin(); send != from.sends.end(); ++send) {
    for (auto receive = to.receives.begin(); receive != to.receives.end(); ++receive) {
      for (std::size_t i = 0; i < receive->slots.size(); ++i) {
        if (receive->filled[i] || receive->slots[i].tag != send->tag) continue;
        if (send->data.size() > receive->slots[i].data.size()) {
          const Status why = Status::invalid("a message of " + std::to_string(send->data.size()) +
                                             " bytes for a buffer of " + std::to_string(receive->slots[i].data.size()));
          fail(from, why, told);
          fail(to, why, told);
          return false;
        }
        std::copy(send->data.begin(), send->data.end(), receive->slots[i].data.begin());
        receive->filled[i] = true;
        receive->completion->sizes[i] = send->data.size();
        send->completion->sizes[0] = send->data.size();
        told.emplace_back(send->completion, Status());
        if (std::find(receive->filled.begin(), receive->filled.end(), false) == receive->filled.end()) {
          told.emplace_back(receive->completion, Status());
          to.receives.erase(receive);
        }
        from.sends.erase(send);
        return true;
      }
    }
  }
  return false;
}

void tell(const Told& told) {
  for (const auto& [completion, status] : told) completion->done(completion, status);
}

class Link final : public Connection {
 public:
  explicit Link(std::shared_ptr<Endpoint> end) : end_(std::move(end)) {}
  ~Link() override { close({}); }

  Status send(std::span<const std::byte> data, int tag, Priority, Completion& completion) override {
    Told told;
    {
      const std::lock_guard lock(mutex);
      if (end_->status.failed()) return end_->status;
      if (end_->sends.size() >= static_cast<std::size_t>(kMaxSends)) return Status::pending();
      end_->sends.push_back({data, tag, &completion});
      progress(told);
    }
    tell(told);
    return {};
  }

  Status recv(std::span<const Slot> slots, Completion& completion) override {
    Told told;
    {
      const std::lock_guard lock(mutex);
      if (end_->status.failed()) return end_->status;
      if (end_->receives.size() >= static_cast<std::size_t>(kMaxReceives)) return Status::pending();
      end_->receives.push_back({{slots.begin(), slots.end()}, std::vector<bool>(slots.size()), &completion});
      progress(told);
    }
    tell(told);
    return {};
  }

  Status status() const override {
    const std::lock_guard lock(mutex);
    return end_->status;
  }

  void close(const Status& why) noexcept override {
    Told told;
    {
      const std::lock_guard lock(mutex);
      fail(*end_, Status(Code::Remote, "closed here"), told);
      if (auto other = end_->other.lock())
        fail(*other, Status(Code::Remote, why.ok() ? "the peer closed" : why.text()), told);
    }
    tell(told);
  }

  const std::string& peer() const override { return peer_; }
  std::span<const std::byte> hello() const override { return {}; }

 private:
  void progress(Told& told) {
    const auto other = end_->other.lock();
    if (other == nullptr) return;
    if (control.cut) {
      fail(*end_, Status(Code::Remote, "connection reset"), told);
      fail(*other, Status(Code::Remote, "connection reset"), told);
      return;
    }
    while (matchOne(*end_, *other, told) || matchOne(*other, *end_, told)) {
    }
  }

  std::shared_ptr<Endpoint> end_;
  std::string peer_ = "memory:1";
};

struct Queue {
  std::deque<std::shared_ptr<Endpoint>> waiting;
};
std::map<Handle, std::shared_ptr<Queue>> queues;

class MemoryListener final : public Listener {
 public:
  MemoryListener() {
    const std::lock_guard lock(mutex);
    static std::uint64_t last = 0;
    ++last;
    std::memcpy(handle_.data(), "memory", 6);
    std::memcpy(handle_.data() + 8, &last, sizeof last);
    queues[handle_] = queue_;
    ++control.listeners;
  }
  ~MemoryListener() override {
    const std::lock_guard lock(mutex);
    queues.erase(handle_);
    --control.listeners;
  }
  const Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<Connection>> accept() override {
    const std::lock_guard lock(mutex);
    if (queue_->waiting.empty()) return Status::pending();
    auto end = queue_->waiting.front();
    queue_->waiting.pop_front();
    return std::unique_ptr<Connection>(std::make_unique<Link>(end));
  }

 private:
  Handle handle_{};
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
};

class MemoryConnector final : public Connector {
 public:
  explicit MemoryConnector(const Handle& handle) : handle_(handle) {
    const std::lock_guard lock(mutex);
    ++control.connectors;
  }
  ~MemoryConnector() override {
    const std::lock_guard lock(mutex);
    --control.connectors;
  }
  Status progress() override {
    const std::lock_guard lock(mutex);
    if (control.stall || ++calls_ < 3) return Status::pending();
    const auto it = queues.find(handle_);
    if (it == queues.end()) return Status::remote("nobody listens");
    end_ = std::make_shared<Endpoint>();
    const auto other = std::make_shared<Endpoint>();
    end_->other = other;
    other->other = end_;
    it->second->waiting.push_back(other);
    return {};
  }
  std::unique_ptr<Connection> take() override { return std::make_unique<Link>(end_); }

 private:
  Handle handle_;
  int calls_ = 0;
  std::shared_ptr<Endpoint> end_;
};

class MemoryTransport final : public Transport {
 public:
  std::span<const Device> devices() const override { return devices_; }
  Result<std::unique_ptr<Listener>> listen(int device, Role) override {
    if (device < 0 || device > 1) return Status::invalid("no such device");
    return std::unique_ptr<Listener>(std::make_unique<MemoryListener>());
  }
  Result<std::unique_ptr<Connector>> connect(int device, const Handle& handle, const ConnectOptions&) override {
    if (device < 0 || device > 1) return Status::invalid("no such device");
    if (std::memcmp(handle.data(), "memory", 6) != 0) return Status::invalid("a foreign handle");
    return std::unique_ptr<Connector>(std::make_unique<MemoryConnector>(handle));
  }

 private:
  std::vector<Device> devices_{
      {.name = "mem0", .pciPath = "", .address = "memory", .guid = 1, .speedMbps = 1000},
      {.name = "mem1", .pciPath = "/sys/devices/x", .address = "memory", .guid = 2, .speedMbps = 2000}};
};

}  // namespace

Result<std::unique_ptr<Transport>> createSocket(const Settings&) {
  const std::lock_guard lock(mutex);
  if (control.noDevices) return Status::invalid("no usable interface");
  return std::unique_ptr<Transport>(std::make_unique<MemoryTransport>());
}

}  // namespace cgx::transport

extern "C" [[gnu::visibility("default")]] CgxMemoryControl* cgxMemoryControl() { return &cgx::transport::control; }
