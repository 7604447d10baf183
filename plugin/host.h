// What the process shares under both halves of the plugin: settings, transport with its devices, contexts of NCCL's
// communicators. Made by the first init of any ABI version, kept until the library is unloaded; starts no thread. Knows
// no net or collnet call.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cgx/settings.h"
#include "cgx/status.h"
#include "cgx/transport.h"
#include "plugin/activate.h"
#include "plugin/dialer.h"
#include "plugin/nccl_types.h"
#include "plugin/statistics.h"

namespace cgx::plugin {

/// One word, the same in all versions and in `NCCL_NET=`.
inline constexpr const char* kPluginName = "CGX";

enum class Half : std::uint8_t { Net, Collnet };

class Host {
 public:
  /// Finds or makes the Host. `log` may be nullptr: an earlier logger stays. A failure is not remembered: a later call
  /// tries again.
  static Result<Host*> attach(ncclDebugLogger_t log, Caller caller);

  /// The Host if init has been called, else as attach(nullptr, Caller::Unclear): calls before init work too.
  static Result<Host*> get();

  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const Settings& settings() const noexcept { return settings_; }
  /// Why compression must not be used although the user asked for it (a bad setting), or Ok.
  const Status& problem() const noexcept { return problem_; }
  /// Whether the user named us; if not we carry net traffic and nothing else.
  bool named() const noexcept { return activation_.decision.named; }
  transport::Transport& transport() noexcept { return *transport_; }
  Dialer& dialer() noexcept { return dialer_; }
  Statistics& statistics() noexcept { return statistics_; }
  /// Code::Invalid unless `dev` is one of devices().
  Result<const transport::Device*> device(int dev) const;
  /// Same numbers for every version.
  template <class Props>
  Status fillProperties(int dev, Props* out) const;

  /// A context is a token, not a pointer: a stale one is noticed, whatever malloc did meanwhile. Never 0.
  std::uint64_t openContext(Half half, std::uint64_t commId);
  bool hasContext(Half half, std::uint64_t context);
  /// False: not open (any more).
  bool closeContext(Half half, std::uint64_t context);

  /// An object that NCCL may, or may not, still hand back.
  struct Orphan {
    virtual ~Orphan() = default;
  };
  /// Keeps it until release(), closeContext() of its context (0: none), or the end.
  void adopt(std::uint64_t context, std::unique_ptr<Orphan> orphan);
  void release(const Orphan* orphan) noexcept;

  /// How many collnet listeners there were before; counts.
  std::uint64_t nextOrdinal() noexcept { return ordinal_.fetch_add(1); }

  /// At most a few lines about late peers in each interval, however many connections wait: true = say it.
  bool mayReportLate(transport::Clock::time_point now);
  /// Ends the process if the user asked for that on a communicator's first error.
  void abortIfAsked(const Status& why) const noexcept;

 private:
  /// What NCCL was told, and what it will make of it.
  struct Activation {
    NcclVersion nccl;
    activation::Decision decision;
    CollnetState collnet;
  };

  Host(Settings settings, Status problem, Activation activation, std::unique_ptr<transport::Transport> transport);
  static Result<std::unique_ptr<Host>> create(ncclDebugLogger_t log, Caller caller);
  void banner();
  void saySettings() const;
  void warnOfCollnet() const;
  friend void unload() noexcept;
  friend class Live;

  const Settings settings_;
  const Status problem_;
  const Activation activation_;
  const std::unique_ptr<transport::Transport> transport_;
  Dialer dialer_;
  Statistics statistics_;
  std::atomic<std::uint64_t> ordinal_{0};
  std::atomic<int> live_{0};  // listeners and communicators in NCCL's hands; while there are any, threads may run
  bool announced_ = false;    // under the lock of attach()

  struct Context {
    Half half;
    std::uint64_t commId;
  };
  std::mutex mutex_;
  std::map<std::uint64_t, Context> contexts_;                               // under mutex_
  std::vector<std::pair<std::uint64_t, std::unique_ptr<Orphan>>> orphans_;  // under mutex_
  std::uint64_t lastContext_ = 0;                                           // under mutex_
  transport::Clock::time_point lateSince_{};                                // under mutex_
  int lateLines_ = 0;                                                       // under mutex_
};

/// Held by every object that NCCL holds: the Host must outlive it.
class Live {
 public:
  explicit Live(Host& host) noexcept : host_(host) { host_.live_.fetch_add(1); }
  ~Live() { host_.live_.fetch_sub(1); }
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

 private:
  Host& host_;
};

/// Frees what the C++ runtime keeps, if it is ours alone; no exception may be thrown afterwards. At the very end of the
/// library.
void releaseRuntime() noexcept;

template <class Props>
Status Host::fillProperties(int dev, Props* out) const {
  auto found = device(dev);
  if (!found.ok()) return std::move(found).status();
  const transport::Device& device = *found.value();
  *out = {};  // a field we forget is zero, not the caller's garbage
  // NCCL's structs lack const; it only reads.
  out->name = const_cast<char*>(device.name.c_str());
  out->pciPath = device.pciPath.empty() ? nullptr : const_cast<char*>(device.pciPath.c_str());
  out->guid = device.guid;
  out->ptrSupport = NCCL_PTR_HOST;
  out->speed = device.speedMbps;
  out->port = device.port;
  out->latency = device.latencyUs;
  out->maxComms = 1 << 16;  // descriptors run out first
  out->maxRecvs = transport::kMaxGroup;
  if constexpr (requires { out->netDeviceType; }) out->netDeviceType = NCCL_NET_DEVICE_HOST;
  // Registering host memory is free and tied to nothing, so one registration serves all communicators of a device.
  if constexpr (requires { out->regIsGlobal; }) out->regIsGlobal = 1;
  if constexpr (requires { out->vProps; }) {
    out->vProps.ndevs = 1;
    out->vProps.devs[0] = dev;
    out->maxP2pBytes = NCCL_MAX_NET_SIZE_BYTES;
    out->maxCollBytes = NCCL_MAX_NET_SIZE_BYTES;
  }
  if constexpr (requires { out->maxMultiRequestSize; }) out->maxMultiRequestSize = 1;
  if constexpr (requires { out->railId; }) {
    out->railId = NCCL_NET_ID_UNDEF;
    out->planeId = NCCL_NET_ID_UNDEF;
  }
  return {};
}

}  // namespace cgx::plugin
