// One communicator's machinery once the mesh stands: windows of messages to and from every peer, and the operations
// that fill them. Knows the plan, the codec and the transport contract; knows neither how the mesh came about nor what
// NCCL is.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cgx/collective.h"
#include "cgx/executor.h"
#include "cgx/wire.h"
#include "inspect.h"
#include "plan.h"

namespace cgx::collective {

inline constexpr std::size_t kMaxOperations =
    64;  // accepted and not yet tested done; NCCL keeps up to 8 steps x groups of 8 channels

/// A job or a completion that knows what it belongs to.
template <class Owner>
struct JobOf : Job {
  Owner* owner = nullptr;
  static Owner& of(Job* job) noexcept { return *static_cast<JobOf*>(job)->owner; }
};
template <class Owner>
struct CompletionOf : transport::Completion {
  Owner* owner = nullptr;
  static Owner& of(transport::Completion* completion) noexcept {
    return *static_cast<CompletionOf*>(completion)->owner;
  }
};

/// One operation; also what callers hold as Request.
struct Request {
  enum class State : std::uint8_t { Free, Running, Done };

  std::atomic<State> state{State::Free};
  std::uint64_t number = 0;  // running number on the communicator
  Plan plan;
  const std::byte* send = nullptr;  // first element that this rank contributes
  std::byte* recv = nullptr;
  std::size_t reportBytes = 0;  // what test() tells
  bool clearSend = false;       // the send memory is NCCL's staging: zero it after reading
  bool scanned = false;         // `exact` is known
  bool exact = false;           // this rank quantises nothing of it
  std::size_t encodesLeft = 0;  // contributions of this rank not yet encoded
  std::size_t unitsLeft = 0;    // messages to send, reductions and decodes until it is done
  transport::Clock::time_point posted;
  std::size_t sizeClass = 0;  // of Counters::sizes; all-reduce only
  class Engine* engine = nullptr;
  JobOf<Request> scan;  // finds `exact` where that takes long
};

std::uint64_t nanosecondsSince(transport::Clock::time_point start) noexcept;

/// Anonymous memory that costs nothing until touched.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();
  Status create(std::size_t bytes);
  std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

struct EngineOptions {
  int rank = 0;
  Limits limits;
  Settings settings;
  std::uint64_t communicator = 0;   // for the rounding noise; the same on every rank
  std::uint32_t configuration = 0;  // hash of what shapes the plan
  const codec::Kernels* kernels = nullptr;
  Executor* executor = nullptr;      // outlives the engine
  std::shared_ptr<Mapping> staging;  // stagingFor(limits) bytes, when already allocated; else start() does it
};

/// Threads: post and test from one thread at a time; fail, drain and close from any; completions on the transport's
/// threads, jobs on the executor's. One mutex guards everything but the bytes themselves; nothing slow happens under
/// it, and no message is posted under it.
///
/// Why it cannot deadlock: a contribution waits for the owner's reduction, a reduction for a result slot, a result slot
/// for the peers' decoding, and decoding for nothing but a worker. Messages of one kind between two ranks are in the
/// same order on both sides.
class Engine {
 public:
  /// `connections[r]` leads to rank r; the own place is empty.
  Engine(EngineOptions options, std::vector<std::unique_ptr<transport::Connection>> connections);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Allocates staging and posts the first receives.
  Status start();
  /// Ok with *request == nullptr: no room.
  Status post(const Shape& shape, const void* send, void* recv, bool clearSend, std::size_t reportBytes,
              Request** request);
  Status test(Request* request, std::size_t* bytes);
  /// Whether a running operation reads or writes any of [data, data + bytes).
  bool uses(const std::byte* data, std::size_t bytes);
  /// Makes `why` the communicator's error, once; tells the peers.
  void fail(const Status& why) noexcept;
  /// After it returns no job touches operations' memory any more. The engine must have failed or be idle.
  void drain() noexcept;
  void close(const Status& why) noexcept;
  Counters counters();
  Status status();

 private:
  enum class SlotState : std::uint8_t { Free, Busy, Ready, InFlight };

  /// A contribution on its way to a peer: Free, Busy (being encoded), Ready, InFlight.
  struct OutSlot {
    CompletionOf<OutSlot> completion;
    JobOf<OutSlot> job;
    Engine* engine = nullptr;
    int peer = 0;
    SlotState state = SlotState::Free;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    Request* operation = nullptr;
    std::size_t block = 0;
    transport::Clock::time_point given;  // to the transport
  };
  /// Room for a message from a peer: Free, InFlight (posted), Ready (arrived), Busy (being reduced or decoded).
  struct InSlot {
    CompletionOf<InSlot> completion;
    JobOf<InSlot> job;
    Engine* engine = nullptr;
    int peer = 0;
    bool result = false;
    SlotState state = SlotState::Free;
    std::byte* memory = nullptr;
    std::uint64_t sequence = 0;
    Request* operation = nullptr;
    Range range;
  };
  struct Reduction;
  struct ResultSend {
    CompletionOf<ResultSend> completion;
    Reduction* reduction = nullptr;
    int peer = 0;
    bool underWay = false;  // given to the transport, not told
    transport::Clock::time_point given;
  };
  /// A block that this rank reduces (or, all-gather, offers): Free, InFlight (waits for contributions), Busy, Ready
  /// (result may leave).
  struct Reduction {
    JobOf<Reduction> job;
    Engine* engine = nullptr;
    SlotState state = SlotState::Free;
    std::byte* memory = nullptr;   // the result's message
    std::byte* scratch = nullptr;  // the own contribution of a one-phase operation
    std::size_t bytes = 0;
    Request* operation = nullptr;
    std::size_t block = 0;
    std::uint64_t contribution = 0;  // its place in the order of contributions, the same for every peer
    std::size_t missing = 0;         // contributions that have not arrived
    std::size_t sendsLeft = 0;
    std::vector<codec::Contribution> parts;
    std::vector<ResultSend> sends;
  };
  struct Cursor {
    std::uint64_t operation = 0;
    std::size_t block = 0;
  };
  struct Peer {
    std::unique_ptr<transport::Connection> connection;
    std::array<OutSlot, kWindow> out;
    std::array<InSlot, kWindow> contributions;
    std::array<InSlot, kWindow> results;
    Cursor next;                      // contribution to encode next
    std::uint64_t outTaken = 0;       // contributions that have a slot
    std::uint64_t outPosted = 0;      // and that were given to the transport
    std::uint64_t resultsPosted = 0;  // of this rank's results
    std::uint64_t contributionReceives = 0;
    std::uint64_t resultReceives = 0;
    std::uint64_t resultsStarted = 0;    // results that have begun to be decoded
    Cursor lastResult;                   // the last of them
    std::uint64_t contributionsDue = 0;  // that the operations so far need from this peer
    std::uint64_t contributionsHere = 0;
    std::uint64_t resultsDue = 0;
    std::uint64_t resultsHere = 0;
    Status ended;          // why nothing comes from it any more, or Ok
    bool pumping = false;  // one thread at a time posts to this peer, so posts keep their order
    bool again = false;
  };
  /// What pump() does next for a peer.
  struct Step {
    enum class What : std::uint8_t { Nothing, SendResult, SendContribution, Receive } what = What::Nothing;
    Reduction* reduction = nullptr;
    OutSlot* out = nullptr;
    InSlot* in = nullptr;
  };

  using Lock = std::unique_lock<std::mutex>;

  // engine.cc
  void postJob(Job& job, Urgency urgency);
  void leave(Lock& lock);  // ends a job or a completion
  void failLocked(const Status& why) noexcept;
  static void runAbort(Job* job) noexcept;
  void lose(Peer& peer, const Status& why) noexcept;
  std::string describeWait(const Request& operation);
  void finishUnit(Request& operation);
  bool running(std::uint64_t number) const { return number < nextOperation_; }
  Request& operationAt(std::uint64_t number) { return operations_[number % kMaxOperations]; }
  std::size_t smallBytes(const Request& operation) const noexcept;
  void decideExact(Request& operation);
  static void runScan(Job* job) noexcept;

  // engine_count.cc; all under the mutex
  void countPosted(const Request& operation);
  void countSmall(const Request& operation);
  void countEncoded(const Request& operation, Range range, const codec::Encoded& encoded, const Inspection& inspection);
  void countMessage(const Request& operation, std::size_t bytes);
  void countDone(const Request& operation);

  // engine_send.cc
  void produce(Peer& peer, int rank);
  static void runEncode(Job* job) noexcept;
  codec::EncodeSpec specOf(const Request& operation, Range range, int phase, bool exact) const;
  codec::Encoded encodeBlock(const Request& operation, Range range, int phase, bool exact, std::byte* payload);
  Inspection inspect(const Request& operation, Range range, const codec::Encoded& encoded) const noexcept;
  void fillHeader(std::byte* message, const Request& operation, int phase, int owner, std::size_t block, Range range,
                  const codec::Encoded& encoded, bool exact);
  void clearAfterUse(const Request& operation, Range range);
  void pump(int rank);
  Step nextStep(Peer& peer, int rank);
  bool isWaitedFor(const Peer& peer, int rank) const;
  Status perform(const Step& step, Peer& peer);
  void contributionSent(OutSlot& slot);
  void resultSent(ResultSend& send);
  static void onSent(transport::Completion* completion, const Status& status) noexcept;
  static void onResultSent(transport::Completion* completion, const Status& status) noexcept;

  // engine_receive.cc
  static void onArrived(transport::Completion* completion, const Status& status) noexcept;
  Status arrive(InSlot& slot);
  Status takeContribution(Reduction& reduction, const InSlot& slot);
  Status takeEarly(Reduction& reduction);
  Status startResults(Peer& peer, int rank);
  Status checkHeader(const wire::MessageHeader& header, const Request& operation, int phase, int owner,
                     std::size_t block, int source) const;
  void createReductions();
  void readyReduction(Reduction& reduction);
  void startReadyReductions();
  static void runReduce(Job* job) noexcept;
  Status collectParts(Reduction& reduction, Range range, bool* exact);
  Status reduceBlock(Reduction& reduction, Range range);
  void gatherBlock(Reduction& reduction, Range range);
  static void runDecode(Job* job) noexcept;
  Status decodeBlock(InSlot& slot);
  Status badPayload(int rank, const Status& why) const;
  codec::Noise noise(const Request& operation, int phase, Range range) const;

  const EngineOptions options_;
  const int ranks_;
  std::shared_ptr<Mapping> staging_;
  std::vector<Peer> peers_;
  std::vector<Reduction> reductions_{kWindow};
  std::array<Request, kMaxOperations> operations_;

  std::mutex mutex_;
  std::condition_variable quiet_;
  std::uint64_t nextOperation_ = 0;
  Cursor nextReduction_;
  std::uint64_t reductionsTaken_ = 0;
  std::uint64_t contributionsTaken_ = 0;  // reductions that wait for contributions, so far
  std::array<Reduction*, kWindow> byContribution_{};
  std::uint64_t resultsTaken_ = 0;  // reductions whose result is sent, so far
  std::array<Reduction*, kWindow> byResult_{};
  std::size_t inside_ = 0;  // jobs and completions between entry and leave()
  bool failed_ = false;
  bool closing_ = false;
  bool aborting_ = false;
  Status error_;
  JobOf<Engine> abort_;
  std::mutex closeMutex_;  // connections are closed by one thread at a time
  Counters counters_;
  transport::Clock::time_point lateReported_;  // by the thread that tests
};

}  // namespace cgx::collective
