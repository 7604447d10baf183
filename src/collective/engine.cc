// The engine's frame: start, operations, errors, shutdown. Sending is in engine_send.cc, receiving in
// engine_receive.cc.
#include "engine.h"

#include <algorithm>
#include <cerrno>
#include <functional>

#include "cgx/log.h"

namespace cgx::collective {

using transport::Clock;

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Status Mapping::create(std::size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    return Status::system("allocate " + std::to_string(bytes >> 20) + " MiB of staging (CGX_STAGING)", errno);
  data_ = static_cast<std::byte*>(p);
  bytes_ = bytes;
  return {};
}

Engine::Engine(EngineOptions options, std::vector<std::unique_ptr<transport::Connection>> connections)
    : options_(std::move(options)), ranks_(options_.limits.ranks), peers_(connections.size()) {
  for (std::size_t r = 0; r < connections.size(); ++r) peers_[r].connection = std::move(connections[r]);
  for (Request& operation : operations_) {
    operation.engine = this;
    operation.scan.run = runScan;
    operation.scan.owner = &operation;
  }
  abort_.run = runAbort;
  abort_.owner = this;
}

Engine::~Engine() { close({}); }

Status Engine::start() {
  const std::size_t slot = slotBytes(options_.limits.blockElements);
  staging_ = options_.staging;
  if (staging_ == nullptr) {
    staging_ = std::make_shared<Mapping>();
    CGX_TRY(staging_->create(stagingFor(options_.limits)));
  }
  std::byte* next = staging_->data();
  const auto take = [&] { return std::exchange(next, next + slot); };
  for (Reduction& reduction : reductions_) {
    reduction.engine = this;
    reduction.job.run = runReduce;
    reduction.job.owner = &reduction;
    reduction.memory = take();
    reduction.scratch = take();
    reduction.parts.resize(static_cast<std::size_t>(ranks_));
    reduction.sends.resize(static_cast<std::size_t>(ranks_));
    for (int r = 0; r < ranks_; ++r) {
      ResultSend& send = reduction.sends[static_cast<std::size_t>(r)];
      send.completion.done = onResultSent;
      send.completion.owner = &send;
      send.reduction = &reduction;
      send.peer = r;
    }
  }
  for (int r = 0; r < ranks_; ++r) {
    if (r == options_.rank) continue;
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    for (std::size_t i = 0; i < kWindow; ++i) {
      OutSlot& out = peer.out[i];
      out.completion.done = onSent;
      out.completion.owner = &out;
      out.job.run = runEncode;
      out.job.owner = &out;
      out.engine = this;
      out.peer = r;
      out.memory = take();
      for (InSlot* in : {&peer.contributions[i], &peer.results[i]}) {
        in->completion.done = onArrived;
        in->completion.owner = in;
        in->job.run = runDecode;
        in->job.owner = in;
        in->engine = this;
        in->peer = r;
        in->result = in == &peer.results[i];
        in->memory = take();
      }
    }
  }
  for (int r = 0; r < ranks_; ++r) {
    if (r != options_.rank) pump(r);
  }
  return status();
}

Status Engine::post(const Shape& shape, const void* send, void* recv, bool clearSend, std::size_t reportBytes,
                    Request** request) {
  *request = nullptr;
  {
    const Lock lock(mutex_);
    for (const Peer& peer : peers_) {
      if (peer.ended.failed()) failLocked(peer.ended);
    }
    if (failed_) return error_;
    Request& operation = operationAt(nextOperation_);
    if (operation.state.load(std::memory_order_relaxed) != Request::State::Free) return {};
    operation.number = nextOperation_;
    operation.plan = Plan(options_.limits, shape);
    operation.send = static_cast<const std::byte*>(send);
    operation.recv = static_cast<std::byte*>(recv);
    operation.reportBytes = reportBytes;
    operation.clearSend = clearSend;
    operation.posted = Clock::now();
    const Plan& plan = operation.plan;
    operation.encodesLeft = operation.unitsLeft = 0;
    for (int r = 0; r < ranks_; ++r) {
      const std::size_t blocks = plan.blocks(r);
      if (r == options_.rank) {
        operation.unitsLeft += blocks;
      } else {
        Peer& peer = peers_[static_cast<std::size_t>(r)];
        if (plan.hasContributions()) {
          operation.encodesLeft += blocks;
          peer.contributionsDue += plan.blocks(options_.rank);
        }
        if (plan.hasResults()) {
          operation.unitsLeft += blocks;
          peer.resultsDue += blocks;
        }
      }
    }
    operation.unitsLeft += operation.encodesLeft;
    ++nextOperation_;
    operation.sizeClass = sizeClassOf(shape.count * shape.elementBytes());
    countPosted(operation);
    operation.state.store(operation.unitsLeft == 0 ? Request::State::Done : Request::State::Running,
                          std::memory_order_release);
    operation.scanned = false;
    decideExact(operation);
    createReductions();
    for (int r = 0; r < ranks_; ++r) {
      if (r == options_.rank) continue;
      Peer& peer = peers_[static_cast<std::size_t>(r)];
      produce(peer, r);
      if (Status early = startResults(peer, r); !early.ok()) failLocked(early);
    }
    if (failed_) return error_;
    *request = &operation;
  }
  return {};
}

// A call on staging may be a piece of a large all-reduce, which the tuner has chosen by its whole size: only as much is
// called small there as NCCL's smallest chunk, which it takes for small messages only (enqueue.cc).
std::size_t Engine::smallBytes(const Request& operation) const noexcept {
  constexpr std::size_t kSmallestChunk = 32 << 10;
  const std::size_t most = options_.settings.minBytes;
  return operation.clearSend ? std::min(most, kSmallestChunk) : most;
}

// Small operations travel exact (promise 5). Small is what the call holds up to its last non-zero element, because NCCL
// rounds counts up to whole chunks. Looking at the end settles nearly every call at once; a long zero tail is left to a
// worker.
void Engine::decideExact(Request& operation) {
  constexpr std::size_t kPeekBytes = 4096;
  const Shape& shape = operation.plan.shape();
  const std::size_t bytes = shape.count * shape.elementBytes();
  operation.exact = shape.kind != Kind::AllReduce || options_.settings.bits == codec::kExactBits || ranks_ == 1 ||
                    bytes <= smallBytes(operation);
  operation.scanned = operation.exact;
  if (operation.exact) return countSmall(operation);
  const std::size_t peek = std::min(bytes, kPeekBytes) / shape.elementBytes();
  const std::size_t before = shape.count - peek;
  const std::size_t content =
      options_.kernels->contentElements(shape.dtype, operation.send + before * shape.elementBytes(), peek);
  if (content != 0) {
    operation.exact = (before + content) * shape.elementBytes() <= smallBytes(operation);
    operation.scanned = true;
    return countSmall(operation);
  }
  postJob(operation.scan, Urgency::Urgent);
}

void Engine::runScan(Job* job) noexcept {
  Request& operation = JobOf<Request>::of(job);
  Engine& self = *operation.engine;
  const Shape& shape = operation.plan.shape();
  Lock lock(self.mutex_);
  if (!self.failed_) {
    lock.unlock();
    const std::size_t content = self.options_.kernels->contentElements(shape.dtype, operation.send, shape.count);
    lock.lock();
    operation.exact = content * shape.elementBytes() <= self.smallBytes(operation);
    operation.scanned = true;
    self.countSmall(operation);
    for (int r = 0; r < self.ranks_; ++r) {
      if (r != self.options_.rank) self.produce(self.peers_[static_cast<std::size_t>(r)], r);
    }
    self.startReadyReductions();
  }
  self.leave(lock);
}

Status Engine::test(Request* request, std::size_t* bytes) {
  // Pairs with the release in finishUnit: whoever sees Done sees the received bytes.
  if (request->state.load(std::memory_order_acquire) == Request::State::Done) {
    *bytes = request->reportBytes;
    const Lock lock(mutex_);
    request->state.store(Request::State::Free, std::memory_order_relaxed);
    return {};
  }
  {
    const Lock lock(mutex_);
    if (failed_) return error_;
  }
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  const auto now = Clock::now();
  const double waited = seconds(now - request->posted);
  if (options_.settings.opTimeout > 0 && waited > options_.settings.opTimeout) {
    fail({Code::Timeout, describeWait(*request) + " (CGX_OP_TIMEOUT)"});
    return status();
  }
  // One line for all operations that wait: the first tested is the oldest.
  if (options_.settings.lateWarn > 0 && waited > options_.settings.lateWarn &&
      seconds(now - lateReported_) > options_.settings.lateWarn) {
    lateReported_ = now;
    CGX_LOG(Warn, Coll, "%s; still waiting", describeWait(*request).c_str());
  }
  return Status::pending();
}

std::string Engine::describeWait(const Request& operation) {
  const Lock lock(mutex_);
  std::string late;
  const auto name = [&](int r) {
    if (late.size() > 400) return;
    late += (late.empty() ? "" : ", ") + peers_[static_cast<std::size_t>(r)].connection->peer();
  };
  for (int r = 0; r < ranks_; ++r) {
    if (r == options_.rank) continue;
    const Peer& peer = peers_[static_cast<std::size_t>(r)];
    bool owes = false;
    for (const Reduction* reduction : byContribution_) {
      if (reduction == nullptr || reduction->state != SlotState::InFlight || reduction->missing == 0) continue;
      const InSlot& slot = peer.contributions[reduction->contribution % kWindow];
      owes |= slot.state == SlotState::InFlight && slot.sequence <= reduction->contribution;
    }
    if (owes) name(r);
  }
  const bool contributionsAreHere = late.empty();
  for (int r = 0; contributionsAreHere && r < ranks_; ++r) {
    if (r != options_.rank && isWaitedFor(peers_[static_cast<std::size_t>(r)], r)) name(r);
  }
  const double waited = std::chrono::duration<double>(Clock::now() - operation.posted).count();
  return std::string(collective::name(operation.plan.shape().kind)) + " " + std::to_string(operation.number) + " of " +
         std::to_string(operation.plan.shape().count) + " elements has waited " +
         std::to_string(static_cast<long>(waited)) + " s for " + (late.empty() ? "this rank's own workers" : late);
}

// Results of it are missing, or it takes none of ours. Under the mutex.
bool Engine::isWaitedFor(const Peer& peer, int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return peer.resultsHere < peer.resultsDue ||
         std::any_of(peer.out.begin(), peer.out.end(),
                     [](const OutSlot& o) { return o.state == SlotState::InFlight; }) ||
         std::any_of(reductions_.begin(), reductions_.end(),
                     [&](const Reduction& r) { return r.sends[index].underWay; });
}

bool Engine::uses(const std::byte* data, std::size_t bytes) {
  const Lock lock(mutex_);
  const auto meets = [&](const std::byte* begin, std::size_t length) {
    const std::less<> before;
    return length != 0 && begin != nullptr && before(begin, data + bytes) && before(data, begin + length);
  };
  return std::any_of(operations_.begin(), operations_.end(), [&](const Request& r) {
    const Shape& shape = r.plan.shape();
    // The own part of a window is never longer than the window.
    const std::size_t length = shape.count * shape.elementBytes();
    return r.state.load(std::memory_order_relaxed) == Request::State::Running &&
           (meets(r.send, length) || meets(r.recv, length));
  });
}

void Engine::finishUnit(Request& operation) {
  if (--operation.unitsLeft > 0) return;
  countDone(operation);
  // Pairs with the acquire in test().
  operation.state.store(Request::State::Done, std::memory_order_release);
}

void Engine::postJob(Job& job, Urgency urgency) {
  ++inside_;
  options_.executor->post(job, urgency);
}

void Engine::leave(Lock& lock) {
  if (!lock.owns_lock()) lock.lock();
  if (--inside_ == 0) quiet_.notify_all();
}

// A peer that is done leaves; nobody meets before that. So its end is an error only while something is still due from
// it, or for the next operation. Under the mutex.
void Engine::lose(Peer& peer, const Status& why) noexcept {
  const bool owes = peer.contributionsHere < peer.contributionsDue || peer.resultsHere < peer.resultsDue;
  if (owes || why.code() != Code::Remote) return failLocked(why);
  if (!peer.ended.failed()) peer.ended = why;
}

void Engine::fail(const Status& why) noexcept {
  const Lock lock(mutex_);
  failLocked(why);
}

void Engine::failLocked(const Status& why) noexcept {
  if (failed_) return;
  failed_ = true;
  error_ = why;
  if (closing_ || aborting_) return;
  // Connections cannot be closed from here: this may be one of their own completions. A worker tells the peers.
  aborting_ = true;
  postJob(abort_, Urgency::Urgent);
}

void Engine::runAbort(Job* job) noexcept {
  Engine& self = JobOf<Engine>::of(job);
  const Status why = self.status();
  {
    const std::lock_guard closing(self.closeMutex_);
    for (Peer& peer : self.peers_) {
      if (peer.connection != nullptr) peer.connection->close(why);
    }
  }
  Lock lock(self.mutex_);
  self.leave(lock);
}

void Engine::drain() noexcept {
  Lock lock(mutex_);
  quiet_.wait(lock, [&] { return inside_ == 0; });
}

void Engine::close(const Status& why) noexcept {
  {
    const Lock lock(mutex_);
    closing_ = true;
    if (!failed_) {
      failed_ = true;
      error_ = why.failed() ? why : Status(Code::Remote, "the communicator is closed");
    }
  }
  drain();
  const std::lock_guard closing(closeMutex_);
  for (Peer& peer : peers_) {
    if (peer.connection != nullptr) peer.connection->close(why);
  }
  drain();  // completions that ran inside close
  for (Peer& peer : peers_) peer.connection.reset();
}

Counters Engine::counters() {
  const Lock lock(mutex_);
  return counters_;
}

Status Engine::status() {
  const Lock lock(mutex_);
  return failed_ ? error_ : Status();
}

}  // namespace cgx::collective
