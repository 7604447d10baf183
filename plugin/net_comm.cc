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

NetComm::~NetComm() { link_->close({}); }

Answer NetComm::send(std::span<const std::byte> data, int tag, void** out) {
  Request* request = requests_.take();
  if (request == nullptr) return {};
  request->messages = 1;
  request->bytes = data.size();
  request->state.store(State::Posted, std::memory_order_relaxed);
  return post(*request, link_->send(data, tag, transport::Priority::Normal, *request), out);
}

Answer NetComm::receive(std::span<const transport::Slot> slots, void** out) {
  Request* request = requests_.take();
  if (request == nullptr) return {};
  request->messages = static_cast<int>(slots.size());
  request->bytes = 0;
  for (const transport::Slot& slot : slots) request->bytes += slot.data.size();
  request->state.store(State::Posted, std::memory_order_relaxed);
  return post(*request, link_->recv(slots, *request), out);
}

Answer NetComm::post(Request& request, const Status& posted, void** out) {
  if (posted.ok()) {
    request.posted = Clock::now();
    *out = requests_.token(request);
    return {};
  }
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
    link_->close(late);
    return failure();
  }
  if (side_ == Side::Recv && settings.lateWarn > 0 && age.count() > settings.lateWarn &&
      now - lateReported_ > std::chrono::duration<double>(settings.lateWarn) && host_.mayReportLate(now)) {
    lateReported_ = now;
    CGX_LOG(Warn, Net, "irecv, peer %s: %s; still waiting", link_->peer().c_str(), waiting(now).c_str());
  }
  return {};
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
