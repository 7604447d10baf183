// One direction of a link as NCCL's net calls see it.
#include "plugin/net_comm.h"

#include <algorithm>
#include <climits>
#include <string>
#include <utility>

namespace cgx::plugin {

using transport::Clock;
using transport::Completion;

// The transport takes that many posts before it says Pending, so the pool is never what limits NCCL.
NetComm::NetComm(Host& host, Side side, std::unique_ptr<transport::Connection> link)
    : live_(host),
      host_(host),
      side_(side),
      link_(std::move(link)),
      requests_(side == Side::Send ? transport::kMaxSends : transport::kMaxReceives) {
  for (Request& request : requests_) {
    request.comm = this;
    request.done = &onDone;
  }
}

NetComm::~NetComm() { closeLink({}); }

void NetComm::closeLink(const Status& why) noexcept {
  const std::lock_guard lock(closing_);
  link_->close(why);
}

Answer NetComm::send(std::span<const std::byte> data, int tag, void** out) {
  Request* request = requests_.take();
  if (request == nullptr) return {};
  prepare(*request, std::array{data});
  return post(*request, link_->send(data, tag, transport::Priority::Normal, *request), out);
}

Answer NetComm::receive(std::span<const transport::Slot> slots, void** out) {
  Request* request = requests_.take();
  if (request == nullptr) return {};
  std::array<std::span<const std::byte>, transport::kMaxGroup> memory;
  std::transform(slots.begin(), slots.end(), memory.begin(), [](const transport::Slot& slot) { return slot.data; });
  prepare(*request, std::span(memory).first(slots.size()));
  return post(*request, link_->recv(slots, *request), out);
}

// Posted before the transport has it, so that a deregistration beside us either sees the request or comes before it.
void NetComm::prepare(Request& request, std::span<const std::span<const std::byte>> memory) {
  const std::lock_guard lock(memoryMutex_);
  std::copy(memory.begin(), memory.end(), request.memory.begin());
  request.messages = static_cast<int>(memory.size());
  request.bytes = 0;
  for (const auto& part : memory) request.bytes += part.size();
  request.state.store(State::Posted, std::memory_order_relaxed);
}

Answer NetComm::post(Request& request, const Status& posted, void** out) {
  if (posted.ok()) {
    request.posted = Clock::now();
    *out = requests_.token(request);
    return {};
  }
  request.state.store(State::Done, std::memory_order_relaxed);
  requests_.give(request);
  if (posted.isPending()) return {};
  noteFailure(posted);
  return failure();
}

// After the store of the state the request may be tested, freed and posted again by another thread: nothing follows it.
void NetComm::onDone(Completion* completion, const Status& status) noexcept {
  auto& request = *static_cast<Request*>(completion);
  if (status.failed()) request.comm->noteFailure(status);
  request.state.store(status.ok() ? State::Done : State::Failed,
                      std::memory_order_release);  // pairs with the load in test()
}

void NetComm::noteFailure(const Status& status) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_.failed()) return;
  try {
    failure_ = status;
  } catch (...) {
    failure_ = Status(Code::System, {}, 0);  // no memory for the text
  }
}

Answer NetComm::failure() {
  Status status;
  {
    const std::lock_guard lock(mutex_);
    status = failure_;
  }
  status = std::move(status).within("peer " + link_->peer());
  if (reported_) return Answer(std::move(status)).repeated();
  reported_ = true;
  host_.abortIfAsked(status);
  return status;
}

Answer NetComm::test(void* token, int* done, int* sizes) {
  *done = 0;
  Request* request = RequestPool<Request>::find(token);
  if (request == nullptr) return Answer::badArgument("no request, or one that was reported done before");
  NetComm& comm = *request->comm;
  switch (request->state.load(std::memory_order_acquire)) {  // pairs with the store in onDone()
    case State::Posted:
      return comm.wait(*request);
    case State::Failed:
      return comm.failure();  // keeps its place: every later test answers the same
    case State::Done:
      for (int i = 0; sizes != nullptr && i < request->messages; ++i)
        sizes[i] = static_cast<int>(std::min<std::size_t>(request->sizes[static_cast<std::size_t>(i)], INT_MAX));
      *done = 1;
      comm.requests_.give(*request);
      break;
  }
  return {};
}

// A peer that is alive but late is waited for. It is named now and then, and given up only if the user set a limit.
Answer NetComm::wait(Request& request) {
  const Settings& settings = host_.settings();
  const auto now = Clock::now();
  const std::chrono::duration<double> age = now - request.posted;
  if (settings.opTimeout > 0 && age.count() > settings.opTimeout) {
    Status late(Code::Timeout, waiting(now) + "; CGX_OP_TIMEOUT has passed");
    noteFailure(late);
    closeLink(late);
    return failure();
  }
  if (side_ == Side::Recv && settings.lateWarn > 0 && age.count() > settings.lateWarn &&
      now - lateReported_ > std::chrono::duration<double>(settings.lateWarn) && host_.mayReportLate(now)) {
    lateReported_ = now;
    CGX_LOG(Warn, Net, "irecv, peer %s: %s; still waiting", link_->peer().c_str(), waiting(now).c_str());
  }
  return {};
}

void* NetComm::registerMemory(std::span<const std::byte> memory) {
  const std::lock_guard lock(memoryMutex_);
  regions_.emplace(lastRegion_ + 1, memory);
  return reinterpret_cast<void*>(++lastRegion_);
}

bool NetComm::deregisterMemory(void* handle) {
  int outstanding = 0;
  {
    const std::lock_guard lock(memoryMutex_);
    const auto region = regions_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (region == regions_.end()) return false;
    const std::span<const std::byte> gone = region->second;
    regions_.erase(region);
    for (const Request& request : requests_) outstanding += losesMemory(request, gone) ? 1 : 0;
  }
  if (outstanding > 0) {
    const Status why = Status::invalid("memory was deregistered with " + std::to_string(outstanding) +
                                       " request(s) on it outstanding");
    noteFailure(why);
    closeLink(why);  // the only way to take a request back
  }
  return true;
}

bool NetComm::losesMemory(const Request& request, std::span<const std::byte> gone) const {
  if (request.state.load(std::memory_order_acquire) != State::Posted) return false;
  const auto end = [](std::span<const std::byte> s) { return s.data() + s.size(); };
  for (const auto& part : std::span(request.memory).first(static_cast<std::size_t>(request.messages))) {
    if (part.empty() || part.data() >= end(gone) || gone.data() >= end(part)) continue;
    const bool covered = std::any_of(regions_.begin(), regions_.end(), [&](const auto& other) {
      return other.second.data() <= part.data() && end(part) <= end(other.second);
    });
    if (!covered) return true;
  }
  return false;
}

std::string NetComm::waiting(Clock::time_point now) const {
  constexpr int kShown = 4;
  int count = 0;
  std::string list;
  for (const Request& request : requests_) {
    if (!request.taken || request.state.load(std::memory_order_relaxed) != State::Posted) continue;
    if (++count > kShown) continue;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - request.posted).count();
    list += (list.empty() ? "" : ", ") + std::to_string(request.bytes) + " bytes for " + std::to_string(seconds) + " s";
  }
  return std::to_string(count) + (side_ == Side::Send ? " send(s)" : " receive(s)") + " outstanding: " + list +
         (count > kShown ? ", ..." : "");
}

}  // namespace cgx::plugin
