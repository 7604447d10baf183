// The contract between those who move messages (NCCL's net calls, the collective) and those who own links
// (src/transport). Knows no sockets, no NCCL, no codec. One conformance suite, test/contract/transport_*, holds every
// transport to it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgx/settings.h"
#include "cgx/status.h"

namespace cgx::transport {

using Clock = std::chrono::steady_clock;

inline constexpr int kMaxGroup = 8;                         // messages that one receive can take (NCCL's maxRecvs)
inline constexpr int kMaxReceives = 32;                     // receives outstanding on a connection
inline constexpr int kMaxSends = kMaxGroup * kMaxReceives;  // sends outstanding on a connection
inline constexpr std::size_t kHandleBytes = 128;            // NCCL_NET_HANDLE_MAXSIZE
inline constexpr std::size_t kMaxHelloBytes = 256;          // what a dialer may say about itself

/// What a peer needs to reach a listener: self-contained, position independent, peer input on arrival.
using Handle = std::array<std::byte, kHandleBytes>;

/// Which half of the plugin a connection serves; a dialer of the other kind is refused.
enum class Role : std::uint8_t { Net = 1, Collective = 2 };

/// What the transport can say about one usable interface. Strings live as long as the transport.
struct Device {
  std::string name;        // "eth0"
  std::string pciPath;     // existing path below /sys/devices, or empty for virtual interfaces
  std::string address;     // "10.0.0.2", for logs
  std::uint64_t guid = 0;  // unique on the host
  int speedMbps = 0;       // never 0: a sane value where the kernel knows none
  int port = 1;
  float latencyUs = 0;
};

/// Told once when a posted send or receive has ended. Owned by the poster; stays alive until told.
/// May be told on any thread, also inside the call that posted it or inside close(); never with a lock of the transport
/// held, so the handler may post again. It must be short: it runs on a progress thread.
struct Completion {
  void (*done)(Completion* self, const Status& status) noexcept = nullptr;
  /// Bytes moved for each message of the post, valid when told Ok; a send fills [0].
  std::array<std::size_t, kMaxGroup> sizes{};
};

/// Room for one incoming message. `data` may be empty (zero-byte messages are real messages).
struct Slot {
  std::span<std::byte> data;
  int tag = 0;
};

/// Higher leaves first where both are ready.
enum class Priority : std::uint8_t { Normal, High };

/// A duplex, reliable, ordered message link between two endpoints. Messages are untyped bytes and arrive bit-exact.
///
/// Matching: a send with tag t fills the oldest receive of the peer that still has an empty slot with tag t. A send may
/// be posted before its receive; it waits at the sender, holding back nothing else. A message longer than its slot
/// fails both ends with Code::Invalid naming both sizes.
///
/// Threads: send, recv and status may be called from any thread; close and the destructor from one, once.
/// Errors are sticky: after the first, every post returns it and every outstanding completion is told at once, by the
/// thread that found the error; who must know that none is still to come calls close.
class Connection {
 public:
  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  virtual ~Connection() = default;  // closes

  /// Ok: posted, `data` must stay as it is until `completion` is told. Pending: kMaxSends are outstanding, nothing
  /// happened. The completion means that the bytes may be overwritten, not that the peer has them.
  virtual Status send(std::span<const std::byte> data, int tag, Priority priority, Completion& completion) = 0;

  /// Posts one receive of up to kMaxGroup messages; told when every slot is filled. Pending: kMaxReceives are
  /// outstanding.
  virtual Status recv(std::span<const Slot> slots, Completion& completion) = 0;

  /// The sticky error, or Ok.
  virtual Status status() const = 0;

  /// Tells the peer why (best effort: `why` reaches it as Code::Remote unless it is Ok), tells every outstanding
  /// completion, stops all access to posted memory and returns in less than a second, without waiting for the peer.
  /// Data of sends already told complete is still delivered if the peer reads it. Idempotent.
  virtual void close(const Status& why) noexcept = 0;

  /// "rank 3 at 10.0.0.2:4711" or the like, for messages.
  virtual const std::string& peer() const = 0;
  /// What the dialer said in ConnectOptions::hello; empty on the dialer's own side.
  virtual std::span<const std::byte> hello() const = 0;
};

/// A connection being made. progress() never blocks; Ok once, then take() hands it over. Any error is final.
/// Dropping a Connector abandons the attempt and frees everything.
class Connector {
 public:
  virtual ~Connector() = default;
  virtual Status progress() = 0;
  virtual std::unique_ptr<Connection> take() = 0;
};

/// Serves any number of dialers, one after another or at once. Handshakes go on in the background, many at a time, each
/// with a deadline; a slow or foreign peer never holds up another. Dropping it ends unfinished handshakes.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual const Handle& handle() const = 0;
  /// Next finished connection, or Pending. Never blocks. An error means the listener itself is broken.
  virtual Result<std::unique_ptr<Connection>> accept() = 0;
};

struct ConnectOptions {
  Role role = Role::Net;
  std::span<const std::byte> hello;  // copied; at most kMaxHelloBytes
  std::string peerName;              // "rank 3"; empty: the address alone
  int streams = 0;                   // 0: by settings
  Clock::duration timeout{};         // 0: Settings::connectTimeout
};

class Transport {
 public:
  virtual ~Transport() = default;  // every listener and connection must be gone
  virtual std::span<const Device> devices() const = 0;
  virtual Result<std::unique_ptr<Listener>> listen(int device, Role role) = 0;
  virtual Result<std::unique_ptr<Connector>> connect(int device, const Handle& handle,
                                                     const ConnectOptions& options) = 0;
};

/// TCP over the interfaces that the settings choose; an error names what was looked for when there is none. Starts no
/// thread.
Result<std::unique_ptr<Transport>> createSocket(const Settings& settings);

}  // namespace cgx::transport
