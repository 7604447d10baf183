#include "mesh.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "cgx/log.h"
#include "cgx/wire.h"

namespace cgx::collective {
namespace {

using transport::Clock;
using transport::Connection;

constexpr int kCardTag = 11;
constexpr int kVerdictTag = 12;
// After its yes a rank waits this much longer than rank 0 does, so that a verdict given in the last moment still
// counts.
constexpr std::chrono::seconds kVerdictGrace{5};
constexpr std::chrono::microseconds kPollInterval{200};
constexpr int kManyRanks = 16;  // above, one stream a peer is enough to fill the link and saves descriptors

/// One message on its way, polled.
struct Transfer {
  struct Told : transport::Completion {
    Transfer* owner = nullptr;
  } completion;
  std::atomic<int> state{0};  // 0 not posted or under way, 1 done, 2 failed
  Status status;              // written before state
  bool posted = false;

  Transfer() {
    completion.owner = this;
    completion.done = [](transport::Completion* c, const Status& s) noexcept {
      Transfer& self = *static_cast<Told*>(c)->owner;
      self.status = s;
      self.state.store(s.ok() ? 1 : 2, std::memory_order_release);  // pairs with the acquires below
    };
  }
  bool done() const { return state.load(std::memory_order_acquire) == 1; }
  bool failed() const { return state.load(std::memory_order_acquire) == 2; }
};

template <std::size_t kSize>
void setText(char (&out)[kSize], const std::string& text) {
  const std::size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(out, text.data(), length);
  out[length] = 0;
}

template <std::size_t kSize>
std::string getText(const char (&text)[kSize]) {
  return {text, strnlen(text, kSize)};
}

struct Seat {
  std::unique_ptr<transport::Connector> connector;  // to lower ranks
  wire::Card card;                                  // rank 0: the peer's; others, for rank 0: the own one
  wire::Verdict verdict;
  Transfer cardTransfer;
  Transfer verdictTransfer;
  // Last, so that it closes first: closing tells the transfers above.
  std::unique_ptr<Connection> connection;
};

class Builder {
 public:
  Builder(const ConnectSpec& spec, const Limits& limits)
      : spec_(spec), limits_(limits), ranks_(limits.ranks), seats_(static_cast<std::size_t>(limits.ranks)) {
    const auto timeout = std::chrono::duration<double>(spec.settings.connectTimeout);
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
    problem_ = spec.problem.failed() ? spec.problem.text() : "";
  }

  Result<Mesh> run() {
    dialAll();
    for (;;) {
      acceptAll();
      progressDials();
      const Status state = spec_.rank == 0 ? coordinate() : follow();
      if (state.failed()) {
        leave(state);
        return state;
      }
      if (state.ok()) return finish();
      std::this_thread::sleep_for(kPollInterval);
    }
  }

 private:
  Seat& seat(int rank) { return seats_[static_cast<std::size_t>(rank)]; }
  bool overdue() const { return Clock::now() >= deadline_; }

  void complain(const std::string& why) {
    if (problem_.empty()) problem_ = why;
  }

  void dialAll() {
    for (int r = 0; r < spec_.rank; ++r) {
      // With a problem of its own a rank only needs the one that it reports to.
      if (!problem_.empty() && r > 0) break;
      wire::MeshHello hello;
      hello.ranks = static_cast<std::uint16_t>(ranks_);
      hello.from = static_cast<std::uint16_t>(spec_.rank);
      hello.to = static_cast<std::uint16_t>(r);
      transport::ConnectOptions options;
      options.role = transport::Role::Collective;
      options.hello = std::as_bytes(std::span(&hello, 1));
      options.peerName = "rank " + std::to_string(r);
      options.streams = spec_.settings.streams == 0 && ranks_ > kManyRanks ? 1 : 0;
      auto connector = spec_.transport->connect(spec_.device, spec_.handles[static_cast<std::size_t>(r)], options);
      if (connector.ok()) {
        seat(r).connector = std::move(connector).value();
      } else {
        cannotReach(r, connector.status());
      }
    }
  }

  void cannotReach(int r, const Status& why) {
    complain("rank " + std::to_string(spec_.rank) + " cannot reach rank " + std::to_string(r) + ": " + why.text());
    if (r == 0) unreachable_ = why;
  }

  void progressDials() {
    for (int r = 0; r < spec_.rank; ++r) {
      Seat& s = seat(r);
      if (s.connector == nullptr) continue;
      const Status state = s.connector->progress();
      if (state.isPending()) continue;
      if (state.ok()) {
        s.connection = s.connector->take();
      } else {
        cannotReach(r, state);
      }
      s.connector.reset();
    }
  }

  void acceptAll() {
    while (broken_.ok()) {
      auto accepted = spec_.listener->accept();
      if (!accepted.ok()) {
        if (accepted.status().failed()) {
          broken_ = accepted.status();
          complain("rank " + std::to_string(spec_.rank) + " cannot accept: " + broken_.text());
        }
        return;
      }
      std::unique_ptr<Connection> connection = std::move(accepted).value();
      wire::MeshHello hello;
      const auto bytes = connection->hello();
      if (bytes.size() == sizeof hello) std::memcpy(&hello, bytes.data(), sizeof hello);
      const bool fits = bytes.size() == sizeof hello && hello.magic == wire::MeshHello::kMagic &&
                        hello.version == wire::kVersion && hello.ranks == ranks_ && hello.to == spec_.rank &&
                        hello.from > spec_.rank && hello.from < ranks_;
      if (!fits || seat(hello.from).connection != nullptr) {
        connection->close(Status::remote("not expected in this communicator of " + std::to_string(ranks_) + " ranks"));
        continue;
      }
      seat(hello.from).connection = std::move(connection);
    }
  }

  // With a reason, so that a rank 0 that has this one's yes notices that it is gone.
  void leave(const Status& why) noexcept {
    for (Seat& s : seats_) {
      if (s.connection != nullptr) s.connection->close(why);
    }
  }

  bool complete() {
    for (int r = 0; r < ranks_; ++r) {
      if (r != spec_.rank && seat(r).connection == nullptr) return false;
    }
    return true;
  }

  std::string absent() {
    std::string names;
    for (int r = 0; r < ranks_; ++r) {
      if (r != spec_.rank && seat(r).connection == nullptr && names.size() < 100) {
        names += (names.empty() ? "rank " : ", ") + std::to_string(r);
      }
    }
    return names;
  }

  wire::Card ownCard() const {
    wire::Card card;
    card.rank = static_cast<std::uint16_t>(spec_.rank);
    card.ranks = static_cast<std::uint16_t>(ranks_);
    card.ready = problem_.empty() ? 1 : 0;
    card.rounding = static_cast<std::uint8_t>(spec_.settings.rounding);
    card.bits = static_cast<std::uint32_t>(spec_.settings.bits);
    card.minBytes = spec_.settings.minBytes;
    card.blockElements = limits_.blockElements;
    card.onePhaseBytes = limits_.onePhaseBytes;
    card.ordinal = spec_.ordinal;
    card.mode = static_cast<std::uint8_t>(spec_.settings.mode);
    card.comms = static_cast<std::uint8_t>(spec_.settings.comms);
    card.worldRanks = static_cast<std::uint32_t>(spec_.settings.worldRanks);
    setText(card.text, problem_);
    return card;
  }

  static void postReceive(Connection& connection, Transfer& transfer, std::span<std::byte> room, int tag) {
    transfer.posted = true;
    const transport::Slot slot{room, tag};
    if (Status s = connection.recv({&slot, 1}, transfer.completion); !s.ok())
      transfer.completion.done(&transfer.completion, s);
  }
  static void postSend(Connection& connection, Transfer& transfer, std::span<const std::byte> data, int tag) {
    transfer.posted = true;
    if (Status s = connection.send(data, tag, transport::Priority::High, transfer.completion); !s.ok()) {
      transfer.completion.done(&transfer.completion, s);
    }
  }

  // Rank 0: collects a card from everybody, then tells everybody. With a no it stays to tell the late ones, too.
  Status coordinate() {
    bool all = true;
    for (int r = 1; r < ranks_; ++r) {
      Seat& s = seat(r);
      if (s.connection == nullptr) {
        all = false;
        continue;
      }
      if (!s.cardTransfer.posted) {
        postReceive(*s.connection, s.cardTransfer, std::as_writable_bytes(std::span(&s.card, 1)), kCardTag);
      }
      if (s.cardTransfer.failed()) {
        complain("rank " + std::to_string(r) + " is gone: " + s.cardTransfer.status.text());
      } else if (!s.cardTransfer.done()) {
        all = false;
      } else if (Status fits = compare(r, s.card); !fits.ok()) {
        complain(fits.text());
      } else if (const Status link = s.connection->status(); !s.verdictTransfer.posted && link.failed()) {
        complain("rank " + std::to_string(r) + " is gone: " + link.text());
      }
    }
    if (!all && overdue()) {
      const std::string names = absent();
      complain((names.empty() ? std::string("some ranks") : names) + " did not come within CGX_CONNECT_TIMEOUT = " +
               std::to_string(static_cast<long>(spec_.settings.connectTimeout)) + " s");
    }
    if (!all && problem_.empty()) return Status::pending();
    const bool told = tellAll();
    if (problem_.empty()) return told ? Status() : overdue() ? tooLate() : Status::pending();
    if ((all && told) || overdue()) return refused(problem_);
    return Status::pending();
  }

  bool tellAll() {
    bool told = true;
    for (int r = 1; r < ranks_; ++r) {
      Seat& s = seat(r);
      if (s.connection == nullptr) continue;
      if (!s.verdictTransfer.posted) {
        s.verdict.ready = problem_.empty() ? 1 : 0;
        s.verdict.ordinal = spec_.ordinal;
        setText(s.verdict.text, problem_);
        postSend(*s.connection, s.verdictTransfer, std::as_bytes(std::span(&s.verdict, 1)), kVerdictTag);
      }
      told &= s.verdictTransfer.done() || s.verdictTransfer.failed();
    }
    return told;
  }

  Status compare(int r, const wire::Card& card) {
    const std::string who = "rank " + std::to_string(r);
    if (card.magic != wire::Card::kMagic || card.version != wire::kVersion || card.rank != r || card.ranks != ranks_) {
      return Status::invalid(who + " sent no valid card");
    }
    if (card.ready == 0) return Status::invalid(getText(card.text));
    const wire::Card own = ownCard();
    const auto differs = [&](const char* setting, std::uint64_t theirs, std::uint64_t ours) {
      return Status::invalid(std::string(setting) + " differs: " + std::to_string(theirs) + " on " + who + ", " +
                             std::to_string(ours) + " on rank 0; set it alike on all ranks");
    };
    if (card.blockElements != own.blockElements) {
      return differs("block length in elements (CGX_STAGING, CGX_BLOCK_ELEMENTS)", card.blockElements,
                     own.blockElements);
    }
    if (card.onePhaseBytes != own.onePhaseBytes)
      return differs("CGX_ONE_PHASE_BYTES", card.onePhaseBytes, own.onePhaseBytes);
    // What the tuner chooses from. Ranks that choose differently wait for each other for ever.
    if (card.mode != own.mode) return differs("CGX_MODE (0 off, 1 auto, 2 always)", card.mode, own.mode);
    if (card.comms != own.comms) return differs("CGX_COMMS (0 world, 1 all)", card.comms, own.comms);
    if (own.comms == static_cast<std::uint8_t>(Comms::World) && card.worldRanks != own.worldRanks)
      return differs("the job's size (WORLD_SIZE and the like; 0: none)", card.worldRanks, own.worldRanks);
    if (own.mode == static_cast<std::uint8_t>(Mode::Auto)) {
      if (card.bits != own.bits) return differs("CGX_BITS", card.bits, own.bits);
      if (card.minBytes != own.minBytes) return differs("CGX_MIN_BYTES", card.minBytes, own.minBytes);
    }
    return {};
  }

  Status follow() {
    Seat& head = seat(0);
    if (unreachable_.failed()) return refused(problem_);
    if (head.connection == nullptr) {
      return overdue() ? refused("rank 0 did not answer within CGX_CONNECT_TIMEOUT") : Status::pending();
    }
    if (!head.verdictTransfer.posted) {
      postReceive(*head.connection, head.verdictTransfer, std::as_writable_bytes(std::span(&head.verdict, 1)),
                  kVerdictTag);
    }
    if (problem_.empty() && !complete() && overdue()) {
      complain("rank " + std::to_string(spec_.rank) + " has no connection to " + absent() +
               " within CGX_CONNECT_TIMEOUT");
    }
    if (!head.cardTransfer.posted && (complete() || !problem_.empty())) {
      head.card = ownCard();
      postSend(*head.connection, head.cardTransfer, std::as_bytes(std::span(&head.card, 1)), kCardTag);
    }
    if (head.verdictTransfer.failed()) return refused("rank 0 is gone: " + head.verdictTransfer.status.text());
    if (head.verdictTransfer.done()) {
      const wire::Verdict& verdict = head.verdict;
      if (verdict.magic != wire::Verdict::kMagic || verdict.version != wire::kVersion)
        return refused("rank 0 sent no valid verdict");
      ordinal_ = verdict.ordinal;
      if (verdict.ready != 1) return refused(getText(verdict.text));
      // The verdict can overtake the news that the own card has left, and the transfer must outlive that news.
      return head.cardTransfer.done() ? Status() : Status::pending();
    }
    if (Clock::now() >= deadline_ + kVerdictGrace)
      return refused(problem_.empty() ? "rank 0 gave no verdict" : problem_);
    return Status::pending();
  }

  static Status refused(const std::string& why) { return {Code::Remote, "no communicator on any rank: " + why}; }
  static Status tooLate() { return refused("the verdict could not be sent within CGX_CONNECT_TIMEOUT"); }

  Mesh finish() {
    Mesh mesh;
    mesh.ordinal = spec_.rank == 0 ? spec_.ordinal : ordinal_;
    if (spec_.rank == 0) warnOfDifferences();
    for (Seat& s : seats_) mesh.connections.push_back(std::move(s.connection));
    return mesh;
  }

  // Codes carry their width, so different settings still give every rank the same sum; but nobody wants that.
  void warnOfDifferences() {
    const wire::Card own = ownCard();
    for (int r = 1; r < ranks_; ++r) {
      const wire::Card& card = seat(r).card;
      if (card.bits == own.bits && card.rounding == own.rounding && card.minBytes == own.minBytes) continue;
      CGX_LOG(Warn, Coll,
              "rank %d has CGX_BITS %u, CGX_ROUNDING %u, CGX_MIN_BYTES %llu; rank 0 has %u, %u, %llu: every rank gets "
              "the same sums, "
              "but set them alike",
              r, card.bits, card.rounding, static_cast<unsigned long long>(card.minBytes), own.bits, own.rounding,
              static_cast<unsigned long long>(own.minBytes));
      return;
    }
  }

  const ConnectSpec& spec_;
  const Limits& limits_;
  const int ranks_;
  Clock::time_point deadline_;
  std::string problem_;  // why there will be no communicator
  Status unreachable_;   // rank 0 cannot be reached
  Status broken_;        // the own listener
  std::uint64_t ordinal_ = 0;
  std::vector<Seat> seats_;
};

}  // namespace

Result<Mesh> connectMesh(const ConnectSpec& spec, const Limits& limits) { return Builder(spec, limits).run(); }

}  // namespace cgx::collective
